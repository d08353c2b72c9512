"""The launchers of notebooks 06 and 08 on a machine whose own name leads to no address."""

import json
import subprocess
import sys

import pytest
from worlds import ROOT, source

NAMELESS = [
    *("unshare", "--mount", "--uts", "sh", "-c"),
    'mount --bind "$1" /etc/hosts && hostname nowhere.invalid && shift && exec "$@"',
    "nameless",
]
MINIMAL = {  # what the cells have from those above them
    "06_ddp": "import json, subprocess, sys",
    "08_deepspeed": "import json, os, socket, subprocess, sys, tempfile\nfrom pathlib import Path\n"
    "class Me: backend = 'gloo'\n"
    "class Cluster(list): folder = Path(tempfile.gettempdir())\n"
    "cluster = Cluster([dict(me=Me)])",
}
RUNS = {
    "06_ddp": 'print(len(records(*torchrun, *train, "--epochs", "2")))',
    "08_deepspeed": """
print(len(records(*torchrun, "../scripts/train_ddp.py", "--json", "--epochs", 2)))""",
}
CELLS = {"06_ddp": "torchrun", "08_deepspeed": "run"}


@pytest.fixture
def nameless(tmp_path):
    """Run a program there; what it printed."""
    (tmp_path / "hosts").write_text("127.0.0.1 localhost\n")
    start = [*NAMELESS, tmp_path / "hosts"]
    if subprocess.run([*start, "true"], capture_output=True).returncode:
        pytest.skip("a machine's name cannot be changed for a test here (Linux, root)")

    def run(program):
        command = [*start, sys.executable, "-c", program]
        folder = ROOT / "notebooks"
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=400)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.long
@pytest.mark.parametrize("book", CELLS)
def test_its_launcher_works(nameless, book):
    cell = source(book, CELLS[book]).split("\n\nserial = ")[0].split("\nserial = ")[0]
    said = nameless(f"{MINIMAL[book]}\n{cell}\n{RUNS[book]}")
    assert set(said.split()) == {"3"}


def test_the_doctor_names_it(nameless):
    program = (
        "import json\nfrom pi2zero import obstacles\nprint(json.dumps([*obstacles.own_name()]))"
    )
    [[what, remedy]] = json.loads(nameless(program))
    assert what.startswith("This machine does not know its own name, nowhere.invalid")
    assert "echo '127.0.1.1 nowhere.invalid' >> /etc/hosts" in remedy
