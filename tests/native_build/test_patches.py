"""What the kit changes in Horovod's source before it compiles it."""

import pytest

from pi2zero.native_build import builder
from pi2zero.native_build.parts import PARTS, PATCHES


def test_each_patch_finds_its_place(tmp_path):
    for name, old, _ in PATCHES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"before\n{old}after\n")
    PARTS["horovod"].prepare(tmp_path)
    for name, _, new in PATCHES:
        assert (tmp_path / name).read_text() == f"before\n{new}after\n"


def test_the_horovod_that_is_built_here_speaks_to_mpirun_5():
    if builder.status_of(PARTS["horovod"]).state != "ready":
        pytest.skip("Horovod is not built here, or not anew: make horovod")
    from horovod.runner import mpi_run

    assert mpi_run._NO_BINDING_ARGS[0] == "--bind-to none"
