"""Python's bytecode of all installed packages: `python -m pi2zero.built.bytecode`. 25 s on two cores.

uv installs sources only. Python keeps the bytecode of what it imports, unless PYTHONDONTWRITEBYTECODE is set, as it is in many
containers: then each rank compiles torch for itself, at every start.
"""

import compileall
import sys
import sysconfig
from pathlib import Path

from pi2zero.built.parts import folder


def packages() -> str:
    """The folder that they are installed in."""
    return sysconfig.get_path("purelib")


def is_there() -> bool:
    """Whether it has been made for what set-up has installed last."""
    try:
        return _note().read_text() == _set_up()
    except OSError:
        return False


def make() -> None:
    """Compile what has changed. Files that are no Python (templates, another version's code) are passed over."""
    compileall.compile_dir(packages(), quiet=2, workers=0)
    folder().mkdir(exist_ok=True)
    _note().write_text(_set_up())


def _note() -> Path:
    return folder() / "bytecode"


def _set_up() -> str:
    marker = Path(sys.prefix) / "pi2zero-set-up"
    return marker.read_text() if marker.exists() else ""


if __name__ == "__main__" and not is_there():
    make()
