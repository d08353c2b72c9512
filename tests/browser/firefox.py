"""A tab of Firefox, by WebDriver BiDi (https://w3c.github.io/webdriver-bidi/) on the port that Firefox itself opens.

Playwright 1.65 starts Debian's Firefox ESR 153, too, but then asks for a command that it does not know; geckodriver, which
Selenium needs, is not in Debian. The methods are those of Playwright's page that tests of JupyterLab call.
"""

import base64
import json
import re
import shutil
import subprocess
import time
from itertools import count
from pathlib import Path

import websocket

FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")
FUNCTION = re.compile(r"\s*(async\s+)?(\([\w, ]*\)|\w+)\s*=>")


class Tab:
    """Starts a headless Firefox with a profile of its own, in a folder that is there."""

    def __init__(self, folder: Path, width: int = 1400, height: int = 1000):
        log, self._numbers = folder / "firefox.log", count(1)
        command = [
            FIREFOX,
            "--headless",
            "--no-remote",
            "--profile",
            folder,
            "--remote-debugging-port=0",
        ]
        with log.open("w") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out)
        deadline = time.monotonic() + 60
        while not (found := re.search(r"ws://\S+", log.read_text())):
            assert self._process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        self._socket = websocket.create_connection(
            f"{found[0]}/session", timeout=120, suppress_origin=True
        )
        self.version = self._ask("session.new", capabilities={})["capabilities"]["browserVersion"]
        self._context = self._ask("browsingContext.create", type="tab")["context"]
        self._ask(
            "browsingContext.setViewport",
            context=self._context,
            viewport={"width": width, "height": height},
        )

    def _ask(self, method: str, **parameters):
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while (reply := json.loads(self._socket.recv())).get("id") != number:
            pass  # an event
        assert reply["type"] == "success", f"{method}: {reply.get('message')}"
        return reply["result"]

    def goto(self, address: str) -> None:
        self._ask("browsingContext.navigate", context=self._context, url=address, wait="complete")

    def evaluate(self, script: str, arg=None):
        """What an expression, or a function of arg, comes to; what a promise is kept with."""
        value = f"({script})({json.dumps(arg)})" if FUNCTION.match(script) else f"({script})"
        text = f"(async () => JSON.stringify(await {value}) ?? 'null')()"
        target = {"context": self._context}
        found = self._ask("script.evaluate", expression=text, target=target, awaitPromise=True)
        assert found["type"] == "success", found.get("exceptionDetails", {}).get("text")
        return json.loads(found["result"]["value"])

    def wait_for_function(self, script: str, arg=None, timeout: float = 30_000) -> None:
        """timeout: ms."""
        deadline = time.monotonic() + timeout / 1000
        while not self.evaluate(script, arg):
            assert time.monotonic() < deadline, f"still not true: {script}"
            time.sleep(0.2)

    def wait_for_timeout(self, timeout: float) -> None:
        time.sleep(timeout / 1000)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(
            base64.b64decode(
                self._ask("browsingContext.captureScreenshot", context=self._context)["data"]
            )
        )

    def close(self) -> None:
        self._socket.close()
        self._process.terminate()
        self._process.wait(timeout=30)
