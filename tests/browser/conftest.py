"""JupyterLab as `make lab` starts it, and a headless Chromium to sit in front of it."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
PATIENCE = 120_000  # milliseconds: on a busy machine a kernel starts in a minute
FLAGS = [
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def pytest_collection_modifyitems(items):
    if CHROMIUM is None:
        for item in items:  # of the whole run, which may have others beside these
            if item.path.is_relative_to(Path(__file__).parent):
                item.add_marker(
                    pytest.mark.skip(
                        reason="no Chromium on the PATH (Debian: apt-get install chromium)"
                    )
                )


@pytest.fixture(scope="session")
def lab(tmp_path_factory, request):
    """(URL with token, log file) of a server on a copy of the kit: nothing here is overwritten."""
    copy = tmp_path_factory.mktemp("kit")
    for name in ("notebooks", "labs", "solutions", "scripts", "tools", "data"):
        shutil.copytree(
            ROOT / name,
            copy / name,
            ignore=shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints"),
        )
    log = copy / "server.log"
    env = {
        k: v for k, v in os.environ.items() if k not in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    }
    env["JUPYTERLAB_WORKSPACES_DIR"] = str(
        copy / "workspaces"
    )  # not the tabs of whoever runs the tests
    env["PI2ZERO_PROGRESS"] = str(copy / "progress.txt")
    with log.open("w") as out:
        command = [
            sys.executable,
            str(copy / "tools" / "lab.py"),
            "--LabApp.expose_app_in_browser=True",
        ]
        server = subprocess.Popen(command, stdout=out, stderr=out, env=env)
    request.config.serves_all_files = server.pid
    deadline = time.monotonic() + 120
    while not (match := re.search(r"http://127\.0\.0\.1:\d+/lab\S*token=\w+", log.read_text())):
        assert server.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)
    yield match[0], log
    server.terminate()
    server.wait(timeout=30)


@pytest.fixture(scope="session")
def browser(request):
    from playwright.sync_api import sync_playwright

    others = set(psutil.Process().children())
    with sync_playwright() as playwright:
        request.config.drives_browser = {
            process.pid for process in set(psutil.Process().children()) - others
        }
        flags = [*FLAGS, "--no-sandbox"] if os.getuid() == 0 else FLAGS
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=flags)


def open_lab(browser, url, width=1400, height=1000, scale=1):
    """A tab with JupyterLab, as it is once the tabs of before are back (they come to the front)."""
    tab = browser.new_page(viewport={"width": width, "height": height}, device_scale_factor=scale)
    tab.set_default_timeout(PATIENCE)
    tab.goto(url)
    wait_until_restored(tab)
    return tab


def wait_until_restored(tab):
    tab.wait_for_function("() => window.jupyterapp?.restored.then(() => true)")


STATE_OF_TAB = """() => {
    const widget = window.jupyterapp?.shell.currentWidget;
    const dialog = document.querySelector('.jp-Dialog-content')?.innerText;
    return [widget?.context?.path, widget?.sessionContext?.session?.kernel?.status, dialog];
}"""


def wait_until_open(tab, name):
    """Wait until this notebook is in front and its kernel is ready."""
    from playwright.sync_api import TimeoutError as PlaywrightTimeout

    try:
        tab.wait_for_function(
            f"name => {{ const [path, status] = ({STATE_OF_TAB})();"
            " return path === name && status === 'idle'; }",
            arg=f"{name}.ipynb",
        )
    except PlaywrightTimeout:
        raise AssertionError(f"{name} is not ready: {tab.evaluate(STATE_OF_TAB)}") from None


@pytest.fixture
def page(browser, lab):
    """A tab that shows JupyterLab's first page. Its last screen is kept in build/screens/."""
    tab = open_lab(browser, lab[0])
    wait_until_open(tab, "notebooks/00_start_here")  # as the kit promises
    yield tab
    tab.close()
