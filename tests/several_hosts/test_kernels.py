"""Kernels that are interrupted, restarted or killed while their ranks are on two hosts: nothing is
left on any of them.
"""

from tests.faults import test_kernels
from tests.faults.test_kernels import test_a_kernel_that_ends_leaves_nothing, test_the_stop_button  # noqa: F401

test_kernels.START = 'import pi2zero\ncluster = pi2zero.start(n=2, on=["node1:1", "node2:1"])'
