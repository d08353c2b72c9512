"""Kernels that are interrupted, restarted or killed while their ranks are on two hosts: nothing is left on any of them."""

from tests.faults import test_kernels
from tests.faults.test_kernels import (  # noqa: F401
    test_a_kernel_killed_while_its_ranks_hang_leaves_nothing,
    test_a_kernel_that_ends_leaves_nothing,
    test_interrupt_while_computing_keeps_the_variables,
    test_interrupt_while_ranks_wait_in_mpi,
)

test_kernels.START = 'import pi2zero\ncluster = pi2zero.start(n=2, on=["node1:1", "node2:1"])'
