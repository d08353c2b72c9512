"""`make compatibility`: for which Pythons and platforms the pins have wheels; writes docs/compatibility.md's table.

uv lists every file of every pinned version (PEP 751); which of them an interpreter takes, its tags say (PEP 425). Then uv
resolves the pins with all that they depend on, for each platform: what comes beside them there is named. Nothing is installed:
only the index is asked, so the table says what can be installed there, not what has been tried.
"""

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from lock import PYPI
from packaging import tags
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "compatibility.md"
TABLE = re.compile(r"(?<=<!-- table -->\n).*?(?=<!-- end of table -->)", re.DOTALL)
PYTHONS = [(3, 11), (3, 12), (3, 13), (3, 14)]
GLIBC = 39  # of 2026's servers; Debian 12 has 2.36
LINUX = [f"manylinux_2_{minor}_{{0}}" for minor in range(GLIBC, 4, -1)] + [
    f"manylinux{year}_{{0}}" for year in (2014, 2010, 1)
]
PLATFORMS = {
    "Linux, x86-64": [name.format("x86_64") for name in LINUX],
    "Linux, aarch64 (GH200, Graviton)": [name.format("aarch64") for name in LINUX],
    "macOS 14, arm64": list(tags.mac_platforms((14, 0), "arm64")),
}
TARGETS = dict(
    zip(
        PLATFORMS,
        ("x86_64-manylinux_2_39", "aarch64-manylinux_2_39", "aarch64-apple-darwin"),
        strict=True,
    )
)  # uv's names
OF_CUDA = (
    "nvidia-",
    "cuda-",
    "triton",
)  # what PyPI's torch for Linux brings: another build of torch has no need of it


def listed():
    """{name==version: [the tags of each of its wheels]}, of all pins."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "pylock.toml"
        uv = Path(sys.executable).with_name("uv")
        command = [
            uv,
            "pip",
            "compile",
            "--no-config",
            "--no-deps",
            "--quiet",
            "--default-index",
            PYPI,
        ]
        command += [
            "--universal",
            "--python-version",
            "3.11",
            "--format",
            "pylock.toml",
            "-o",
            out,
            ROOT / "requirements.txt",
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"uv could not list the pins' files:\n{done.stderr}")
        packages = tomllib.loads(out.read_text())["packages"]
    return {
        f"{p['name']}=={p['version']}": [wheel_tags(wheel["url"]) for wheel in p.get("wheels", [])]
        for p in packages
    }


def beside_the_pins(target, python):
    """Packages that the pins need on a platform and that are no pins themselves, torch's CUDA left out; or uv's error."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "resolved.txt"
        uv = Path(sys.executable).with_name("uv")
        command = [
            uv,
            "pip",
            "compile",
            "--no-config",
            "--quiet",
            "--no-header",
            "--no-annotate",
            "--default-index",
            PYPI,
        ]
        command += [
            "--python-platform",
            target,
            "--python-version",
            ".".join(map(str, python)),
            "-o",
            out,
        ]
        environment = os.environ | {"MACOSX_DEPLOYMENT_TARGET": "14.0"}
        done = subprocess.run(
            [*command, ROOT / "requirements.txt"], capture_output=True, text=True, env=environment
        )
        if done.returncode:
            return [f"**not resolved**: {' '.join(done.stderr.split()) or 'uv says nothing'}"]
        pins = {pin.name for pin in requirements(ROOT / "requirements.txt")}
        return sorted(
            pin.name
            for pin in requirements(out)
            if pin.name not in pins and not pin.name.startswith(OF_CUDA)
        )


def requirements(path):
    """Its pins, by their names as the index has them."""
    for line in path.read_text().splitlines():
        if line.partition("#")[0].strip():
            pin = Requirement(line.partition("#")[0])
            pin.name = canonicalize_name(pin.name)
            yield pin


def wheel_tags(url):
    return parse_wheel_filename(url.rpartition("/")[2].replace("%2B", "+"))[3]


def taken(python, platforms):
    """The tags that such an interpreter takes."""
    interpreter = f"cp{python[0]}{python[1]}"
    return {
        *tags.cpython_tags(python, platforms=platforms),
        *tags.compatible_tags(python, interpreter, platforms),
    }


def missing(wheels, python, platforms):
    """Pins that have wheels, but none for that Python there."""
    good = taken(python, platforms)
    return [pin for pin, each in wheels.items() if each and not any(good & one for one in each)]


def rows(wheels):
    source = sorted(pin for pin, each in wheels.items() if not each)
    yield f"{len(wheels)} pins; {', '.join(source)} come as source everywhere (pure Python to install). The others:\n"
    yield "| platform | " + " | ".join(f"Python {major}.{minor}" for major, minor in PYTHONS) + " |"
    yield "|---" * (len(PYTHONS) + 1) + "|"
    for title, platforms in PLATFORMS.items():
        cells = []
        for python in PYTHONS:
            lacking = missing(wheels, python, platforms)
            cells.append("no wheel: " + ", ".join(lacking) if lacking else "all have wheels")
        yield f"| {title} | " + " | ".join(cells) + " |"
    yield "\nResolved with all that the pins depend on; beside the pins come (torch's CUDA left out):\n"
    for title, target in TARGETS.items():
        more = {
            version: ", ".join(beside_the_pins(target, version)) or "nothing" for version in PYTHONS
        }
        told = [
            f"{words} (Python {', '.join(f'3.{v[1]}' for v in more if more[v] == words)})"
            for words in dict.fromkeys(more.values())
        ]
        yield f"- {title}: {'; '.join(told)}"


def main():
    text = "\n".join(rows(listed()))
    print(text)
    PAGE.write_text(TABLE.sub(lambda _: text + "\n", PAGE.read_text()))


if __name__ == "__main__":
    main()
