"""`make gpu` without a GPU: its sentence; and, with a pretended list of paths, its real subprocesses and its page."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import gpu  # noqa: E402
import gpu_cases  # noqa: E402

FACTS = {
    "gpus": [{"name": "Pretended A1", "bytes": 80e9}] * 2,
    "versions": {"Python": "3.12.1", "torch": "2.11.0"},
    "driver": "550.1, Default",
    "modules": ["sklearn"],
}


def case(code, **more):
    return gpu.Case(code[:20], [sys.executable, "-c", code], **more)


def outcome(code, seconds=60, **more):
    return gpu.run(case(code, **more), time.monotonic() + seconds)


def test_without_a_gpu_it_says_so_and_writes_nothing(tmp_path):
    env = dict(os.environ, CUDA_VISIBLE_DEVICES="")
    command = [sys.executable, ROOT / "tools" / "gpu.py", "--out", tmp_path / "pages"]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=100)
    assert done.returncode == 1 and done.stdout == ""
    assert (
        done.stderr.startswith("make gpu: there is no GPU here that torch ")
        and len(done.stderr.splitlines()) == 1
    )
    assert not (tmp_path / "pages").exists()


def test_a_python_without_torch_is_told_in_one_sentence(monkeypatch, tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(gpu, "environment", lambda: dict(os.environ))
    with pytest.raises(
        SystemExit, match=r"cannot load torch and ask for its GPUs \(ImportError: no torch here\)"
    ):
        gpu.look()


def test_outcomes_of_real_processes():
    good = outcome("print('first'); print('last')")
    assert (good.state, good.lines) == ("passed", ("last",))
    assert outcome("print('a'); print('b')", shown=5).lines == ("a", "b")
    bad = outcome("print('before'); raise ValueError('the reason')")
    assert (
        bad.state == "FAILED"
        and bad.lines[0] == "before"
        and bad.lines[-1] == "ValueError: the reason"
    )
    absent = outcome("print(1)", missing="there is no nvcc")
    assert (absent.state, absent.lines) == ("not possible here", ("there is no nvcc",))
    assert outcome("print(1)", seconds=1).state == "not tried"
    assert (
        outcome(
            "import os; print(os.environ['X'], os.environ['PYTHONPATH'])", environment={"X": "y"}
        )
        .lines[0]
        .startswith("y /")
    )


CHILD = """
import subprocess, sys, time
print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'], start_new_session=True).pid, flush=True)
time.sleep(300)
"""


def test_a_path_that_hangs_is_ended_with_all_that_it_started():
    hung = gpu.run(case(CHILD, seconds=7), time.monotonic() + 60)
    assert hung.state == "FAILED" and hung.lines[-1].startswith("it had not ended after 7 s")
    child = int(hung.lines[0])
    deadline = time.monotonic() + 30
    while runs(child) and time.monotonic() < deadline:
        time.sleep(0.05)  # it has been killed, and is ending
    assert not runs(child)


def test_a_path_that_the_end_of_all_time_cuts_has_not_failed():
    cut = outcome("import time; time.sleep(300)", seconds=6)
    assert cut.state == "not tried" and cut.lines[-1].startswith(
        "the time was over: it had not ended after "
    )


def test_of_a_rank_that_fails_its_own_words_are_shown_not_torchrun_s():
    (program,) = [one for one in gpu_cases.cases(FACTS) if one.title == "FSDP2"]
    command = [
        *program.command[:5],
        "1",
        "--no-python",
        sys.executable,
        "-c",
        "raise ValueError('the reason')",
    ]
    failed = gpu.run(gpu.Case("", command), time.monotonic() + 60)
    assert failed.state == "FAILED" and failed.lines[-1] == "ValueError: the reason"


TIMES = "import time; print(time.time()); time.sleep(1); print(time.time())"


def test_what_measures_runs_alone_after_all_others_and_the_others_side_by_side():
    paths = [
        gpu.Case(name, [sys.executable, "-c", TIMES], shown=2, alone="alone" in name)
        for name in ("alone", "a", "b", "alone 2")
    ]
    spans = {
        one.case.title: list(map(float, one.lines))
        for one in gpu.run_all(paths, time.monotonic() + 60, 2)
    }
    assert list(spans) == ["alone", "a", "b", "alone 2"]
    assert max(spans["a"][0], spans["b"][0]) < min(spans["a"][1], spans["b"][1])
    assert (
        max(spans["a"][1], spans["b"][1]) <= spans["alone"][0]
        and spans["alone"][1] <= spans["alone 2"][0]
    )


def runs(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_the_page_tells_hardware_versions_and_every_path(monkeypatch, tmp_path, capsys):
    given = [
        case("print('fine | indeed')"),
        case("1 / 0"),
        case("0", missing="no nvcc"),
        case("print(1); print(2)", shown=9),
    ]
    monkeypatch.setattr(gpu, "look", lambda: FACTS)
    monkeypatch.setattr(gpu, "cases", lambda facts: given)
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--out", str(tmp_path / "gpu")])
    assert gpu.main() == 1
    (page,) = (tmp_path / "gpu").iterdir()
    text = page.read_text()
    assert page.name.endswith("-2x-pretended-a1.md") and str(page) in capsys.readouterr().out
    assert (
        "2 x Pretended A1, 80 GB" in text
        and "| Python | 3.12.1 |" in text
        and "550.1, Default" in text
    )
    assert "2 passed, 1 FAILED, 1 not possible here, 0 not tried." in text
    assert "fine \\| indeed" in text and "| not possible here | 0 | no nvcc |" in text
    assert "ZeroDivisionError" in text.partition("## 1 / 0: FAILED")[2] and "```\n1\n2\n```" in text


def test_some_paths_only_have_a_page_of_their_own(monkeypatch, tmp_path):
    monkeypatch.setattr(gpu, "look", lambda: FACTS)
    monkeypatch.setattr(
        gpu, "cases", lambda facts: [case("print('wanted')"), case("print('other')")]
    )
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--out", str(tmp_path), "--only", "wanted"])
    assert gpu.main() == 0
    (page,) = tmp_path.iterdir()
    assert (
        page.name.endswith("-2x-pretended-a1-some.md") and "1 passed, 0 FAILED" in page.read_text()
    )
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--out", str(tmp_path), "--only", "nothing"])
    with pytest.raises(SystemExit):
        gpu.main()


def test_a_torch_that_cannot_use_the_driver_s_gpu_is_told(monkeypatch):
    looked = json.dumps(FACTS | {"gpus": []})
    monkeypatch.setattr(
        gpu.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, looked, "")
    )
    with pytest.raises(
        SystemExit,
        match=r"NVIDIA's driver is here, but torch 2\.11\.0 cannot use its GPU.*make clean",
    ):
        gpu.look()


def test_the_environment_s_own_mpirun_is_taken_whatever_the_shell_s_path(monkeypatch):
    if sys.prefix == sys.base_prefix or not Path(sys.executable).with_name("mpirun").exists():
        pytest.skip("this Python is no environment with an mpirun of its own")
    monkeypatch.setenv("PATH", "/usr/bin")
    found = {one.title: one for one in gpu_cases.cases(FACTS | {"modules": ["mpi4py"]})}
    bench = found["scripts/allreduce_bench.py"]
    assert bench.missing == "" and bench.command[0] == str(Path(sys.executable).with_name("mpirun"))
    assert gpu.environment()["PATH"].startswith(f"{Path(sys.executable).parent}:")


def test_what_a_path_needs_and_is_not_here_is_named(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(
        sys, "prefix", sys.base_prefix
    )  # no environment, whose own mpirun would be found
    found = {one.title: one for one in gpu_cases.cases(FACTS)}
    assert found["FSDP2"].missing == "" and found["scripts/train_ddp.py"].missing == ""
    assert found["ZeRO stage 3, fp16"].missing == "this Python has no deepspeed"
    assert found["scripts/allreduce_bench.py"].missing == "this Python has no mpi4py"
    everything = FACTS | {"modules": ["mpi4py", "deepspeed"]}
    found = {one.title: one for one in gpu_cases.cases(everything)}
    assert found["scripts/allreduce_bench.py"].missing == "there is no mpirun on the PATH"
    assert found["ZeRO stage 2, optimizer offloaded to the host"].missing.startswith(
        "there is no nvcc"
    )


def test_every_path_names_a_program_that_is_there():
    for one in gpu_cases.cases(FACTS):
        assert [
            word
            for word in map(str, one.command)
            if word.endswith(".py") and (ROOT / word).is_file()
        ], one.title
    notebooks = [
        word for one in gpu_cases.cases(FACTS) for word in one.command if word.endswith(".ipynb")
    ]
    assert len(notebooks) == len(gpu_cases.NOTEBOOKS) and all(
        (ROOT / name).is_file() for name in notebooks
    )


ONE_AFTER_ANOTHER = """
import sys
sys.path.insert(0, "tools")
import gpu_programs
from pi2zero import ranks
leave, ranks.leave = ranks.leave, lambda: None  # one world for all: DeepSpeed knows one in the life of a process
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
    done = gpu.run(
        gpu.Case("", [*gpu_cases.TORCHRUN, "2", tmp_path / "all.py", *programs], shown=5),
        time.monotonic() + 200,
    )
    assert done.state == "passed", done.lines
    said = [
        "2 ranks over gloo on cpu, cpu",
        "2 ranks over gloo, all-reduce, time and bus bandwidth: 1 MiB",
        "2 ranks over gloo: loss",
        "2 ranks over gloo on cpu: loss",
        "2 ranks over gloo, stage 3: 'The ",
    ]
    assert all(line.startswith(words) for line, words in zip(done.lines, said, strict=True)), (
        done.lines
    )


def test_look_is_json_about_this_python():
    done = subprocess.run(
        [sys.executable, ROOT / gpu_cases.PROGRAMS, "look"],
        capture_output=True,
        text=True,
        timeout=100,
    )
    facts = json.loads(done.stdout)
    assert (
        set(facts) == set(FACTS) and "torch" in facts["versions"] and "sklearn" in facts["modules"]
    )


@pytest.mark.long
def test_ranks_on_one_core_and_what_they_leave_of_it():
    command = [
        sys.executable,
        ROOT / "tools" / "gpu_share.py",
        "--core",
        "--ranks",
        "1",
        "--pauses",
        "400",
        "--steps",
        "4",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    (paused,) = [line.split() for line in done.stdout.splitlines()[1:]]
    assert paused[:2] == ["400", "1"]
    assert int(paused[-1].rstrip("%")) > 50, (
        "a rank that sleeps 400 ms a step leaves most of its core"
    )


def test_every_program_and_notebook_that_may_use_a_gpu_is_tried():
    """Those of two hosts, and those that say that they compute on the CPU, are not."""
    elsewhere = {"notebooks/12_clusters.ipynb", "scripts/train_pipeline.py"}
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
    tried = {word for one in gpu_cases.cases(FACTS) for word in one.command}
    assert len(may) > 15 and may - tried == elsewhere
