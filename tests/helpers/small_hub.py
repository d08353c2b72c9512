"""A Hugging Face hub on loopback with one dataset, as far as `load_dataset` asks for it."""

import hashlib
import http.server
import json
import threading
from pathlib import PurePosixPath

import pyarrow as pa
from pyarrow import parquet

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPOSITORY = "abisee/cnn_dailymail"
CARD = """---
configs:
- config_name: 3.0.0
  data_files:
  - {split: train, path: 3.0.0/train-*}
  - {split: validation, path: 3.0.0/validation-*}
  - {split: test, path: 3.0.0/test-*}
---
"""


def tables(train=20, validation=4, test=4):
    """{path in the repository: bytes} of a small CNN/DailyMail: its columns in their order."""
    files = {"README.md": CARD.encode()}
    for split, count in {"train": train, "validation": validation, "test": test}.items():
        rows = [
            {"article": f"{split} {i} .", "highlights": "One .\nTwo .", "id": f"{split}{i}"}
            for i in range(count)
        ]
        sink = pa.BufferOutputStream()
        parquet.write_table(pa.Table.from_pylist(rows), sink)
        files[f"3.0.0/{split}-00000-of-00001.parquet"] = sink.getvalue().to_pybytes()
    return files


class Hub:
    """with Hub(files) as hub: hub.url answers; hub.requests has what was asked."""

    def __init__(self, files):
        self.requests = []
        self._server = http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), _handler(files, self.requests)
        )
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()


def _handler(files, requests):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            requests.append(f"{self.command} {self.path}")
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            status, headers, data = _answer(self.path.partition("?")[0], body, files)
            self.send_response(status)
            headers = {"X-Repo-Commit": COMMIT, "Content-Length": str(len(data))} | headers
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_HEAD = do_POST = do_GET

        def log_message(self, *_):
            pass

    return Handler


def _answer(path, body, files):
    """(status, headers, data) for a path below the hub's address."""
    api, resolve = f"/api/datasets/{REPOSITORY}", f"/datasets/{REPOSITORY}/resolve/"
    if path.startswith(resolve):
        name = path.removeprefix(resolve).split("/", 1)[1]
        if name in files:
            return 200, {"ETag": f'"{hashlib.sha1(files[name]).hexdigest()}"'}, files[name]
    elif path.startswith(f"{api}/tree/"):
        return (
            200,
            {},
            json.dumps(_tree(files, path.removeprefix(f"{api}/tree/").partition("/")[2])).encode(),
        )
    elif path.startswith(f"{api}/paths-info/"):
        asked = json.loads(body)["paths"]
        return (
            200,
            {},
            json.dumps([entry for entry in _tree(files) if entry["path"] in asked]).encode(),
        )
    elif path == api or path.startswith(f"{api}/revision/"):
        siblings = [{"rfilename": name} for name in files]
        return 200, {}, json.dumps({"id": REPOSITORY, "sha": COMMIT, "siblings": siblings}).encode()
    return 404, {"X-Error-Code": "EntryNotFound"}, b""


def _tree(files, folder=""):
    """The entries in a folder of the repository; of all of it, if none is named."""
    kinds = {name: "file" for name in files} | {
        str(PurePosixPath(name).parent): "directory" for name in files if "/" in name
    }
    return [
        {
            "type": kind,
            "path": name,
            "oid": hashlib.sha1(name.encode()).hexdigest(),
            "size": len(files.get(name, b"")),
        }
        for name, kind in kinds.items()
        if not folder or name.startswith(f"{folder}/")
    ]
