"""`doctor --report` packs what helps to find a mistake, and no secret."""

import json
import subprocess
import sys
import zipfile

import pytest

from pi2zero import log
from pi2zero.doctor import report

SECRETS = {  # a line of a log: what must not be in the report
    "login with password=correct-horse": "correct-horse",
    '{"access_token": "abc def ghi"}': "abc def ghi",
    "Authorization: Bearer abcdef.12345": "abcdef.12345",
    "cannot reach https://me:swordfish@example.org/simple": "swordfish",
    "using hf_AbCdEfGhIjKlMnOp": "hf_AbCdEfGhIjKlMnOp",
    "http://127.0.0.1:8888/lab?token=0123456789": "0123456789",
    "Session.key = " + "5f" * 32: "5f" * 32,
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz\n-----END OPENSSH PRIVATE KEY-----": "b3BlbnNz",
    "a value of the environment: xyzzy-plugh": "xyzzy-plugh",
    "another one: tree-frog-7": "tree-frog-7",
}


@pytest.fixture
def env(tmp_path, monkeypatch):
    """Secrets in the environment and in a log that was kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("WANDB_API_KEY", "xyzzy-plugh")
    monkeypatch.setenv("PI2ZERO_PASSWORD", "tree-frog-7")
    monkeypatch.setenv("MY_DATABASE", "not noted at all")
    monkeypatch.setenv("OMPI_MCA_btl", "self,sm")
    log.folder().mkdir(parents=True)
    lines = ["rank 1 died: signal SIGKILL", *SECRETS, "the end"]
    (log.folder() / "20260101-000000-abcdefgh.log").write_text("\n".join(lines))


def test_what_is_inside_and_what_is_not(env, tmp_path):
    target = tmp_path / "report.zip"
    command = [sys.executable, "-m", "pi2zero", "doctor", "--report", target]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert str(target) in done.stdout and target.stat().st_mode & 0o077 == 0
    with zipfile.ZipFile(target) as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()}
    everything = "\n".join(texts.values())
    assert not [secret for secret in SECRETS.values() if secret in everything]
    assert "not noted at all" not in everything and "MY_DATABASE" not in everything
    kept = texts["logs/20260101-000000-abcdefgh.log"]
    assert kept.startswith("rank 1 died: signal SIGKILL") and kept.endswith("the end")
    assert json.loads(texts["settings.json"])["OMPI_MCA_btl"] == "self,sm"
    assert "Your shell sets OMPI_MCA_btl" in texts["in_the_way.txt"]
    assert json.loads(texts["versions.json"])["packages"]["ipyparallel"]
    assert json.loads(texts["doctor.json"]) and "logs/" in texts["README.txt"]


@pytest.mark.parametrize(
    "text", ["tokens/s 24,000", "step 3, loss 0.1", "--timeout=30 ranks: 4", '"tokenizers": "1.0"']
)
def test_what_is_no_secret_stays(text):
    assert report.redact(text) == text
