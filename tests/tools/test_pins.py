"""The lock has hashes, fits the environment, and takes the oldest Python that the kit promises."""

import re
import tomllib
from importlib.metadata import metadata, version
from pathlib import Path

from packaging.specifiers import SpecifierSet

from pi2zero.native_build.parts import PARTS

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "requirements.lock").read_text()
ENTRIES = re.findall(r"(?m)^([\w.-]+)==(\S+) \\\n((?: +--hash=sha256:[0-9a-f]{64}.*\n)+)", LOCK)


def test_every_pin_has_a_hash_and_is_what_is_installed():
    assert len(ENTRIES) == len(re.findall(r"(?m)^[\w.-]+==", LOCK)) > 150
    assert not {name: pin for name, pin, _ in ENTRIES if version(name) != pin}
    assert version("torch").partition("+")[0] == re.search(r"(?m)^# torch==(\S+)", LOCK)[1]


def test_every_pin_takes_the_oldest_python_that_the_kit_promises():
    """Debian 12 has Python 3.11.2."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == ">=3.11,<3.15"
    wanted = {name: metadata(name).get("Requires-Python", "") for name, *_ in ENTRIES}
    assert not {name: want for name, want in wanted.items() if "3.11.2" not in SpecifierSet(want)}


def test_the_deepspeed_that_is_compiled_is_the_pinned_one():
    (deepspeed,) = [(pin, hashes) for name, pin, hashes in ENTRIES if name == "deepspeed"]
    assert deepspeed[0] == PARTS["deepspeed"].VERSION and PARTS["deepspeed"].SHA256 in deepspeed[1]
