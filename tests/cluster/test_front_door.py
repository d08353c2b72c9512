"""`import pi2zero`: what Tab offers, and numbers of ranks that are NumPy's."""

import subprocess
import sys

import numpy as np
import pytest

import pi2zero
from pi2zero.cluster.mpi_cluster import MPICluster

LIST = "import sys, {0}; print(set({0}.__all__) <= set(dir({0})), 'torch' in sys.modules)"


@pytest.mark.parametrize("package", ["pi2zero", "pi2zero.meters"])
def test_tab_offers_what_is_loaded_at_its_first_use(package):
    command = [sys.executable, "-c", LIST.format(package)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "True False\n"


@pytest.mark.parametrize("n", [0, True, 2.0, "2", None, np.float64(2)])
def test_what_is_no_number_of_ranks(n):
    with pytest.raises(ValueError, match="a whole number from 1 up"):
        pi2zero.start(n=n)


def test_numpy_s_integers_are_numbers(cluster):
    cluster.view["x"] = 3
    assert cluster[np.int64(1)]["x"] == cluster[-1]["x"] == 3
    for rank in (np.int64(4), -5, "0", 0.0):
        with pytest.raises(IndexError, match="this cluster has ranks 0 to 3"):
            cluster[rank]


@pytest.mark.long
def test_start_takes_numpy_s_integers():
    ranks = pi2zero.start(n=np.int64(1))
    assert isinstance(ranks, MPICluster) and type(ranks.n) is int
    ranks.stop()
    assert repr(ranks) == "<MPICluster: stopped>"


def test_a_folder_that_is_gone_is_said_before_anything_starts(tmp_path, monkeypatch):
    """The notebook's folder was removed under its live kernel."""
    (folder := tmp_path / "workshop").mkdir()
    with monkeypatch.context() as patch:
        patch.chdir(folder)
        folder.rmdir()
        with pytest.raises(pi2zero.ClusterError, match=r"was removed or replaced: .*%cd ~"):
            pi2zero.start(n=2)
