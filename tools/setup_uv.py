"""pip's settings for uv, which does not read them, and which build of torch this machine should have.

Standard library only, as tools/setup.py.
"""

import ast
import os
import re
import shutil
import subprocess
import sys

PYTORCH = "https://download.pytorch.org/whl/"
# pip's setting, the variable in which uv wants it, and what stands between several values there.
SAME = (
    ("index-url", "UV_DEFAULT_INDEX", None),
    ("extra-index-url", "UV_INDEX", " "),
    ("find-links", "UV_FIND_LINKS", ","),
    ("cert", "SSL_CERT_FILE", None),
    ("client-cert", "SSL_CLIENT_CERT", None),
    ("proxy", "ALL_PROXY", None),
    ("default-timeout", "UV_HTTP_TIMEOUT", None),
    ("timeout", "UV_HTTP_TIMEOUT", None),
    ("trusted-host", "UV_INSECURE_HOST", " "),
)
FLAGS = (("no-cache-dir", "UV_NO_CACHE"),)  # for no-index uv has an option only
# They would send packages to another place than the environment.
ELSEWHERE = (
    "UV_SYSTEM_PYTHON",
    "UV_TARGET",
    "UV_PREFIX",
    "UV_PYTHON",
    "UV_PROJECT_ENVIRONMENT",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
)
LINE = re.compile(r"^(global|install|:env:)\.([a-z-]+)=(.+)$", re.M)
RANK = ("global", "install", ":env:")  # a later one wins


def pip_settings(python, env):
    """pip's settings as {name: value}: of its files and of the environment, as pip itself puts them together."""
    listed = subprocess.run(
        [python, "-m", "pip", "config", "list"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
    )
    sys.stderr.write(
        listed.stderr.decode(errors="replace")
    )  # not its traceback, if both are interrupted
    found = LINE.findall(listed.stdout.decode(errors="replace"))
    found.sort(key=lambda line: RANK.index(line[0]))
    return {name: str(ast.literal_eval(value)) for _, name, value in found}


def uv_environment(settings, env):
    """The environment in which uv does what pip would. What the user has set for uv wins."""
    made = {
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_NO_PROGRESS": "1",
        "UV_PYTHON_DOWNLOADS": "never",
    }
    for name, variable, between in SAME:
        values = settings.get(name, "").split()
        if (
            name == "find-links"
        ):  # pip passes over a folder that is not there, and knows ~; uv fails
            values = [
                value
                for value in map(os.path.expanduser, values)
                if "://" in value or os.path.exists(value)
            ]
        if values:
            made[variable] = (between or " ").join(values)
    for name, variable in FLAGS:
        if is_on(settings, name):
            made[variable] = "1"
    if "UV_HTTP_TIMEOUT" in made:
        made["UV_HTTP_TIMEOUT"] = str(int(float(made["UV_HTTP_TIMEOUT"])))
    if "ALL_PROXY" in made:  # pip's setting stands above the shell's variables; uv knows only these
        made.update(
            dict.fromkeys(
                ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), made["ALL_PROXY"]
            )
        )
    made.update({name: value for name, value in env.items() if name.startswith("UV_")})
    return {name: value for name, value in dict(env, **made).items() if name not in ELSEWHERE}


def is_on(settings, name):
    return settings.get(name, "").lower() in ("1", "true", "yes", "on")


def has_gpu():
    """Whether there is an NVIDIA GPU that its driver can use."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "" or not shutil.which("nvidia-smi"):
        return False
    try:
        listed = subprocess.run(
            ["nvidia-smi", "-L"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return b"GPU " in listed.stdout


def reaches(address, python, env, seconds=3):
    """Whether a web address answers, asked with the environment's proxy and certificates."""
    asked = (
        "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=%d).close()"
        % seconds
    )
    try:
        command = [python, "-c", asked, address]
        return (
            subprocess.run(
                command, env=env, stderr=subprocess.DEVNULL, timeout=seconds + 2
            ).returncode
            == 0
        )
    except subprocess.TimeoutExpired:
        return False


def torch_backend(settings, python, env, gpu):
    """uv's --torch-backend: "cpu", or "auto" for the CUDA that the driver knows; None where pip's settings have to do."""
    if env.get("UV_TORCH_BACKEND"):
        return env["UV_TORCH_BACKEND"]
    chosen = settings.get("index-url", "") + settings.get("extra-index-url", "")
    if (
        is_on(settings, "no-index")
        or PYTORCH in chosen
        or not reaches(PYTORCH + "cpu/torch/", python, env)
    ):
        return None
    return "auto" if gpu else "cpu"
