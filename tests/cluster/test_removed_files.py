"""What a cleaner of temporary files takes from live ranks comes back, or the cell says so."""

import shutil
from pathlib import Path

import pytest

import pi2zero
from pi2zero.hosts.place import shared_memory_dir


@pytest.mark.long
def test_ranks_whose_files_are_removed_join_hang_and_restart_as_before():
    """Between two cells, and in the middle of one."""
    cluster = pi2zero.start(n=3)
    try:
        folder = cluster._engines.folder
        segments = Path(shared_memory_dir(folder))
        cluster.run("import shutil\nfrom mpi4py import MPI\nfrom pi2zero import ranks")
        cluster.run("comm = MPI.COMM_WORLD")
        clean(folder, segments)
        cluster.run("size = ranks.join().world_size\nsum = comm.allreduce(1)")
        assert cluster.view["size"] == cluster.view["sum"] == [3, 3, 3]
        assert list(segments.glob("torch-*")), "torch's store needs locks, a disk may have none"
        cluster.view["folders"] = [str(folder), str(segments)]
        hang = "for path in folders:\n    shutil.rmtree(path, ignore_errors=True)\n"
        hang += "if comm.rank == 0:\n    comm.Barrier()"
        with pytest.raises(pi2zero.RankError, match="rank 0 waited forever") as hangs:
            cluster.run(hang, timeout=4)
        assert "comm.Barrier()" in hangs.value.report
        cluster.run("from mpi4py import MPI\nsum = MPI.COMM_WORLD.allreduce(1)")
        assert cluster.view["sum"] == [3, 3, 3], "the ranks are new"
        clean(folder)
        folder.touch()
        with pytest.raises(pi2zero.ClusterError, match=r"was removed \(by a cl[^~]*Start anew"):
            cluster.run("x = 1")
        folder.unlink()
        cluster.run("x = 1")
        (own := cluster.folder / "mine").touch()
    finally:
        cluster.stop()
    assert not own.exists() and not folder.exists() and not segments.exists()


def clean(*folders):
    for folder in folders:
        shutil.rmtree(folder)
