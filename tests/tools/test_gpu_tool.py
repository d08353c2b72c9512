"""`make gpu` on a machine without a GPU: its sentences, real processes, and its page."""

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import gpu
import psutil
import pytest

from pi2zero.ownership import wait_until_ended

ROOT = Path(__file__).parents[2]
FACTS = {
    "gpus": [{"name": "Pretended A1", "bytes": 80e9}] * 2,
    "versions": {"Python": "3.12.1", "torch": "2.11.0"},
    "driver": "550.1, Default",
    "modules": ["sklearn"],
}


def run(code, seconds=60, **options):
    case = gpu.Case(f"-c {shlex.quote(code)}", "python", **options)
    return gpu.run(case, FACTS, time.monotonic() + seconds)


def test_without_a_gpu_it_says_so_and_writes_nothing(tmp_path):
    env = dict(os.environ, CUDA_VISIBLE_DEVICES="")
    command = [sys.executable, ROOT / "tools" / "gpu.py", "--out", tmp_path / "pages"]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=100)
    assert done.returncode == 1 and done.stdout == "" and not (tmp_path / "pages").exists()
    [line] = done.stderr.splitlines()
    assert line.startswith("make gpu: there is no GPU here that torch ")


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("raise ImportError('no torch here')", r"\(ImportError: no torch here\)"),
        (f"print({json.dumps(FACTS | {'gpus': []})!r})", "NVIDIA's driver is here, but torch"),
    ],
)
def test_what_keeps_torch_from_the_gpus_is_one_sentence(monkeypatch, tmp_path, program, says):
    (tmp_path / "look.py").write_text(program)
    monkeypatch.setattr(gpu, "PROGRAMS", tmp_path / "look.py")
    with pytest.raises(SystemExit, match=says):
        gpu.find_hardware()


def test_outcomes_of_real_processes():
    assert run("print('a'); print('b')").lines == ("a", "b")
    failed = run("print('its words'); raise SystemExit(3)")
    assert (failed.state, failed.lines) == ("FAILED", ("its words",))
    missing = run("", needs="sklearn horovod no_program")
    assert missing.state == "not possible here"
    assert missing.lines == ("there is no horovod, no no_program",)
    assert run("", seconds=4).state == "not tried"
    assert run("import time; time.sleep(60)", seconds=6).state == "not tried"


def test_a_path_that_hangs_is_ended_with_all_that_it_started():
    code = "import subprocess; p = subprocess.Popen(['sleep', '77']); print(p.pid, flush=True)"
    case = gpu.Case(f"-c {shlex.quote(code + '; p.wait()')}", "python", seconds=8)
    hung = gpu.run(case, FACTS, time.monotonic() + 60)
    assert hung.state == "FAILED" and "had not ended after 8 s" in hung.lines[-1]
    with contextlib.suppress(psutil.NoSuchProcess):
        assert not wait_until_ended([psutil.Process(int(hung.lines[0]))], patience=10)


def test_the_page_tells_hardware_versions_and_every_path(monkeypatch, tmp_path):
    case = gpu.Case("-c 'print(1 | 2)'", "python")
    measures = gpu.Case("-c 'print(7)'", "python", alone=True)
    monkeypatch.setattr(gpu, "CASES", [measures, case, gpu.Case("x", needs="horovod")])
    monkeypatch.setattr(gpu, "find_hardware", lambda: FACTS)
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--out", str(tmp_path)])
    assert gpu.main() == 0
    [page] = tmp_path.glob("*-2x-pretended-a1.md")
    text = page.read_text()
    assert "2 x Pretended A1, 80 GB" in text and "| torch | 2.11.0 |" in text
    assert "2 passed, 1 not possible here." in text and "there is no horovod" in text
    assert text.index("print(1 | 2)") < text.index("print(7)")
    assert "## -c 'print(7)' (python): passed\n\n```\n7\n```" in text
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--only", "nothing"])
    with pytest.raises(SystemExit):
        gpu.main()


ONE_AFTER_ANOTHER = """
import sys
sys.path.insert(0, "tools")
import gpu_programs
from pi2zero import ranks
# One world for all: DeepSpeed has one in the life of a process.
leave, ranks.leave = ranks.leave, lambda: None
for words in sys.argv[1:]:
    sys.argv = ["", *words.split()]
    gpu_programs.main()
leave()
"""


@pytest.mark.long
def test_the_programs_run_on_cpu_ranks(tmp_path):
    (tmp_path / "all.py").write_text(ONE_AFTER_ANOTHER)
    programs = [
        "world",
        "allreduce --sizes 1048576",
        "fsdp",
        "zero --stage 2 --width 64",
        "generate",
    ]
    program = shlex.join([str(tmp_path / "all.py"), *programs])
    done = gpu.run(gpu.Case(program, "2", seconds=200), FACTS, time.monotonic() + 200)
    assert done.state == "passed", done.lines
    said = [
        "2 ranks over gloo on cpu, cpu",
        "2 ranks over gloo, all-reduce, time and bus bandwidth: 1 MiB",
        "2 ranks over gloo: loss",
        "2 ranks over gloo on cpu: loss",
        "2 ranks over gloo, stage 3: 'The ",
    ]
    seen = [line for line in done.lines if line.startswith(tuple(said))]
    assert all(line.startswith(words) for line, words in zip(seen, said, strict=True)), done.lines


def test_look_is_json_about_this_python():
    done = subprocess.run(
        [sys.executable, ROOT / gpu.PROGRAMS, "look"], capture_output=True, text=True, timeout=100
    )
    facts = json.loads(done.stdout)
    assert (
        set(facts) == set(FACTS) and "torch" in facts["versions"] and "sklearn" in facts["modules"]
    )


def test_every_program_and_notebook_that_may_use_a_gpu_is_tried():
    """Those of two hosts, and those that say that they compute on the CPU, are not."""
    elsewhere = {"notebooks/12_clusters.ipynb", "scripts/train_pipeline.py"}
    elsewhere |= {"scripts/common.py"}  # no program: the others import it
    files = [
        path
        for pattern in ("scripts/*.py", "notebooks/*.ipynb", "solutions/*.ipynb")
        for path in ROOT.glob(pattern)
    ]
    may = {
        str(path.relative_to(ROOT))
        for path in files
        if re.search(r"me\.device|\.cuda\b|device=", path.read_text("utf-8"))
    }
    tried = {word for case in gpu.CASES for word in case.program.split()}
    assert len(may) > 15 and may - tried == elsewhere
