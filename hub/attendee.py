"""A simulated attendee: logs in, opens JupyterLab, and runs cells in a kernel as a browser does."""

import json
import re
import time
import uuid
from urllib.parse import urljoin

import nbformat
import requests
import websocket

ANSI = re.compile(r"\x1b\[[0-9;]*m")


class Attendee:
    """Works through the hub's proxy, with one person's cookies or token. hub: its address."""

    def __init__(self, hub: str, name: str, password: str):
        self.hub, self.name, self.password = hub.rstrip("/"), name, password
        self.server = f"{self.hub}/user/{name}"
        self.browser, self.headers = requests.Session(), {}

    def log_in(self) -> None:
        """By the form, with name and password. PermissionError if the hub does not take them."""
        self.browser.get(f"{self.hub}/hub/login", timeout=60)
        form = {"username": self.name, "password": self.password, "_xsrf": self.xsrf()}
        self.browser.post(f"{self.hub}/hub/login", data=form, timeout=60, allow_redirects=False)
        if "jupyterhub-session-id" not in self.browser.cookies or not self.is_logged_in():
            raise PermissionError(f"the hub did not let {self.name} in")

    def is_logged_in(self) -> bool:
        page = self.browser.get(f"{self.hub}/hub/home", timeout=60, allow_redirects=False)
        return page.status_code == 200

    def xsrf(self) -> str:
        return next(
            cookie.value
            for cookie in self.browser.cookies
            if cookie.name == "_xsrf" and cookie.path == "/hub/"
        )

    def open_lab(self, seconds: float) -> int:
        """Press "Start my server", wait, load JupyterLab's page and scripts; their bytes."""
        self.browser.get(f"{self.hub}/hub/spawn", timeout=seconds)
        page = self.until_lab(seconds)
        scripts = re.findall(r'<script[^>]* src="([^"]+)"', page.text)
        assert scripts, "JupyterLab's page has scripts"
        return len(page.content) + sum(
            len(self.browser.get(urljoin(page.url, path), timeout=60).content) for path in scripts
        )

    def until_lab(self, seconds: float):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            page = self.browser.get(f"{self.server}/lab", timeout=60)
            if (
                page.status_code == 200
                and "jupyter-config-data" in page.text
                and page.url.startswith(self.server)
            ):
                return page
            time.sleep(0.5)
        raise TimeoutError(f"{self.name}'s JupyterLab was not there after {seconds:.0f} s")

    def take_token(self) -> None:
        """As the hub's page "Token" gives it: for the server's own interface."""
        made = self.browser.post(
            f"{self.hub}/hub/api/users/{self.name}/tokens",
            json={"note": "attendee"},
            headers={"X-XSRFToken": self.xsrf()},
            timeout=60,
        )
        made.raise_for_status()
        self.headers = {"Authorization": f"token {made.json()['token']}"}

    def ask(self, method: str, path: str, **options):
        answer = requests.request(
            method, f"{self.server}/{path}", headers=self.headers, timeout=60, **options
        )
        answer.raise_for_status()
        return answer

    def stop(self) -> None:
        """Press "Stop my server", and wait until it is gone."""
        url = f"{self.hub}/hub/api/users/{self.name}"
        requests.delete(f"{url}/server", headers=self.headers, timeout=120)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if not requests.get(url, headers=self.headers, timeout=60).json().get("servers"):
                return
            time.sleep(0.3)
        raise TimeoutError(f"{self.name}'s server did not stop")

    def open_notebook(self, path: str) -> list:
        """Its cells. A kernel for it sends its messages by a websocket."""
        notebook = self.ask("GET", f"api/contents/{path}").json()
        session = {"path": path, "type": "notebook", "name": path, "kernel": {"name": "python3"}}
        self.kernel = self.ask("POST", "api/sessions", json=session).json()["kernel"]["id"]
        self.websocket = self.connect(self.headers)
        return nbformat.from_dict(notebook["content"]).cells

    def connect(self, headers: dict):
        url = f"{self.server.replace('http', 'ws', 1)}/api/kernels/{self.kernel}/channels"
        return websocket.create_connection(url, header=headers, timeout=300)

    def run(self, code: str) -> tuple[str, str]:
        """(what a cell printed, its error or nothing)"""
        header = {
            "msg_id": uuid.uuid4().hex,
            "msg_type": "execute_request",
            "username": self.name,
            "session": "s",
            "version": "5.3",
        }
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
        }
        message = {
            "header": header,
            "parent_header": {},
            "metadata": {},
            "content": content,
            "channel": "shell",
            "buffers": [],
        }
        self.websocket.send(json.dumps(message))
        text, answer, idle = "", None, False
        while answer is None or not idle:
            data = self.websocket.recv()
            if isinstance(data, bytes):  # with buffers: pictures of widgets
                continue
            message = json.loads(data)
            if message["parent_header"].get("msg_id") != header["msg_id"]:
                continue
            kind, content = message["msg_type"], message["content"]
            text += content["text"] if kind == "stream" else ""
            answer = content if kind == "execute_reply" else answer
            idle = idle or (kind == "status" and content["execution_state"] == "idle")
        error = "" if answer["status"] == "ok" else f"{answer['ename']}: {answer['evalue']}"
        return ANSI.sub("", text), ANSI.sub("", error)

    def run_notebook(self, path: str) -> tuple[int, list[str]]:
        """(number of code cells, those that failed or should have failed); all of them run."""
        cells = [cell for cell in self.open_notebook(path) if cell.cell_type == "code"]
        wrong = []
        for cell in cells:
            _, error = self.run(cell.source)
            if bool(error) != ("raises-exception" in cell.metadata.get("tags", [])):
                wrong.append(f"{error or 'no error'} in: {cell.source}")
        return len(cells), wrong

    def close_notebook(self) -> None:
        self.websocket.close()
        self.ask("DELETE", f"api/kernels/{self.kernel}")
