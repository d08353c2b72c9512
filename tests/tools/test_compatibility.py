"""tools/compatibility.py: which wheels an interpreter takes. (What PyPI has, it asks there: make compatibility.)"""

import re
from pathlib import Path

import pytest
from packaging.tags import parse_tag

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def program():
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(ROOT / "tools")
    import compatibility

    yield compatibility
    patch.undo()


WHEELS = {
    "pure==1": [parse_tag("py3-none-any")],
    "source==1": [],
    "stable==1": [parse_tag("cp310-abi3-manylinux2014_x86_64")],
    "new==1": [
        parse_tag("cp312-cp312-manylinux_2_28_aarch64"),
        parse_tag("cp312-cp312-macosx_11_0_arm64"),
    ],
    "future==1": [parse_tag("cp312-cp312-manylinux_2_99_x86_64")],
}


@pytest.mark.parametrize(
    ("python", "platform", "lacking"),
    [
        ((3, 12), "Linux, x86-64", ["new==1", "future==1"]),
        ((3, 12), "Linux, aarch64 (GH200, Graviton)", ["stable==1", "future==1"]),
        ((3, 11), "Linux, aarch64 (GH200, Graviton)", ["stable==1", "new==1", "future==1"]),
        ((3, 12), "macOS 14, arm64", ["stable==1", "future==1"]),
    ],
)
def test_what_has_no_wheel_is_named(program, python, platform, lacking):
    assert program.missing(WHEELS, python, program.PLATFORMS[platform]) == lacking


def test_the_page_knows_every_python_that_the_set_up_takes(program):
    page = program.TABLE.search(program.PAGE.read_text())[0]
    assert "source==1" in next(program.rows(WHEELS))
    for platform in program.PLATFORMS:
        assert f"| {platform} |" in page
    (wanted,) = re.findall(r"^WANTED = .*$", (ROOT / "tools" / "setup.py").read_text(), re.M)
    versions = re.findall(r"\((\d), (\d+)\)", wanted)
    assert len(versions) >= 3 and all(
        f"Python {major}.{minor} |" in page for major, minor in versions
    )
