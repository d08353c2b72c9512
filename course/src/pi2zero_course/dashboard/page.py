"""The instructor's side: a live page of tasks and seats, and, if asked for, an address for notes.

`python -m pi2zero_course room FOLDER` shows the notes in that folder; with `--listen ADDRESS`
attendees send theirs to this machine.
"""

import html
import json
import os
import secrets
import socket
import stat
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from pi2zero_course.dashboard import board, notes

MAX_NOTE_BYTES = 500
MAX_NOTES = 2000  # of a seat
ALL_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104  (they are refused)
REFRESH_S = 3
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>The room at a glance</title>
<meta name="viewport" content="width=device-width"><style>
body { font: 18px sans-serif; margin: 1.5rem; color: #1c2331; background: #fff }
h1 { font-size: 1.4rem; margin: 0 } #stuck { font-size: 1.4rem; font-weight: bold; margin: .6rem 0 }
.wide { overflow-x: auto } table { border-collapse: collapse }
th, td { padding: .2rem .6rem; border: 1px solid #c8ccd2; text-align: left }
th { background: #eef0f3; font-weight: 600 } td { min-width: 6em }
.right { background: #009e73; color: #000 } .wrong { background: #e69f00; color: #000 }
.open { color: #4b5563 }
.here { outline: 3px solid #1c2331; outline-offset: -3px }
</style><h1>The room at a glance</h1><main id="room">ROOM</main>
<p>A frame: where the seat is now. In brackets: tries.</p>
<noscript><meta http-equiv="refresh" content="REFRESH"></noscript><script>
setInterval(async () => {
  const room = document.getElementById("room");
  let now;
  try { now = await (await fetch(location.pathname + "/room")).text(); }
  catch { now = "<p>The page's program has ended, or cannot be reached.</p>"; }
  if (now !== room.dataset.shown) { room.dataset.shown = now; room.innerHTML = now; }
}, REFRESH * 1000);
</script></html>"""


def room(shown: board.Board, now: float) -> str:
    """The sentence and the table, as HTML."""
    sentence = f'<p id="stuck">{html.escape(board.stuck(shown, now))}</p>'
    if not shown.states:
        return sentence
    heads = "".join(f'<th scope="col">{html.escape(task)}</th>' for task in shown.tasks)
    sums = "".join(
        f"<td>{shown.count_right(task)} of {len(shown.states)} right<br>"
        f"{len(shown.at_work(task))} at work</td>"
        for task in shown.tasks
    )
    rows = "".join(_row(shown, seat, now) for seat in shown.states)
    return (
        f'{sentence}<div class="wide" tabindex="0"><table><tr><th scope="col">seat</th>{heads}'
        f'<th scope="col">last note</th></tr><tr><th scope="row">all</th>{sums}<td></td></tr>'
        f"{rows}</table></div>"
    )


def _row(shown: board.Board, seat: int, now: float) -> str:
    states, place, cells = shown.states[seat], shown.places[seat], ""
    for task in shown.tasks:
        state = states.get(task)
        style, text = "", ""
        if state:
            style = "right" if state.right else "wrong" if state.wrong else "open"
            text = state.text()
        cells += f'<td class="{style}{" here" if task == place else ""}">{text}</td>'
    minutes = max(now - states[place].last, 0) // 60
    ago = "now" if minutes < 1 else f"{minutes:.0f} min ago"
    return f'<tr><th scope="row">{seat}</th>{cells}<td>{ago}</td></tr>'


class Room(ThreadingHTTPServer):
    """Takes notes at one secret path, and shows the page at another, for the instructor."""

    daemon_threads = True
    request_queue_size = 128  # a whole room may press Enter at once; 5, the default, is too few

    def __init__(self, folder: Path, address: str, port: int, takes: bool):
        self.folder, self.takes = folder, takes
        self.secrets = url_secrets(folder)
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        super().__init__((address, port), Handler)

    def server_bind(self):
        """Without the library's look-up of this machine's name, and at once after an earlier page,
        whose last connections would hold the port for a minute."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()


class Handler(BaseHTTPRequestHandler):
    """Answers one request to a Room: 404 without one of the room's secrets in its path."""

    timeout = 5  # s that a client may take to send its request
    server_version, sys_version = "pi2zero", ""

    def do_GET(self):
        """The instructor's page, or (PAGE/room) the part of it that is drawn anew."""
        page = f"/{self.server.secrets['page']}"
        if self.path not in (page, f"{page}/room"):
            return self._reply(404)
        shown = room(board.read(self.server.folder), time.time())
        if self.path == page:
            shown = PAGE.replace("REFRESH", str(REFRESH_S)).replace("ROOM", shown)
        return self._reply(200, shown.encode())

    def do_POST(self):
        """Takes one note: 204; 400 if it is none, is too long, or the room is full."""
        length = self.headers.get("Content-Length", "")
        if not self.server.takes or self.path != f"/{self.server.secrets['notes']}":
            return self._reply(404)
        if not length.isdecimal() or int(length) > MAX_NOTE_BYTES:
            return self._reply(400)
        try:
            self._keep(notes.Note.read(self.rfile.read(int(length))))
        except (ValueError, OSError):
            return self._reply(400)
        return self._reply(204)

    def _keep(self, note: notes.Note) -> None:
        """Raises ValueError if the seat has too many notes, or the room too many seats."""
        file = self.server.folder / f"{note.seat}.jsonl"
        if file.exists() and file.stat().st_size > MAX_NOTES * 100:
            raise ValueError("too many notes")
        seats = len(list(self.server.folder.glob("*.jsonl")))
        if not file.exists() and seats >= board.MAX_SEATS:
            raise ValueError("too many seats")
        notes.append(note, self.server.folder)

    def _reply(self, status: int, text: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(text)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        """No log: addresses of attendees are not kept."""


def url_secrets(folder: Path) -> dict[str, str]:
    """The secret parts of this room's two URLs; the same when the program is started again."""
    file = folder / ".words.json"
    try:
        file.touch(mode=0o600, exist_ok=False)  # follows no link
        is_new = True
    except FileExistsError:
        is_new = False
    status = file.lstat()
    is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid()
    if not is_own or status.st_mode & 0o077:
        why = "another user may have put it there"
        if is_new:
            file.unlink()
            why = "this file system does not keep owners and modes"
        raise PermissionError(f"{file} is not yours alone: {why}. Take another folder.")
    if not is_new:
        return json.loads(file.read_text())
    letters = "abcdefghjkmnpqrstuvwxyz23456789"  # without those that look alike on a wall
    notes_secret = "".join(secrets.choice(letters) for _ in range(6))
    parts = {"notes": notes_secret, "page": secrets.token_hex(12)}
    file.write_text(json.dumps(parts))
    return parts


def make_folder(folder: Path, takes: bool) -> None:
    """Make it if it is missing: private if notes come over the network, else writable for all users
    but listed by its owner only."""
    if not folder.exists():
        folder.mkdir(parents=True)
        folder.chmod(0o700 if takes else 0o1733)


def serve(folder: Path, listen: str | None, port: int) -> int:
    """Show the page until Ctrl-C; returns the exit status.

    listen: the address of this machine at which attendees' notes are taken, if they are.
    """
    folder = folder.resolve()
    if listen in ALL_ADDRESSES:
        print(
            f"--listen {listen} is no address that attendees can type. "
            "Name this machine's own in the room's network."
        )
        return 2
    try:
        make_folder(folder, takes=bool(listen))
        server = Room(folder, listen or "127.0.0.1", port, takes=bool(listen))
    except (OSError, ValueError, KeyError) as error:
        print(
            f"The room cannot be shown: {error}. Another port: --port 0; "
            "another folder: python -m pi2zero_course room FOLDER"
        )
        return 1
    host, port = listen or "127.0.0.1", server.server_address[1]
    host = f"[{host}]" if ":" in host else host
    where = f"http://{host}:{port}/{server.secrets['notes']}" if listen else folder
    call = f'import pi2zero_course; pi2zero_course.join_room("{where}", seat=THEIR_NUMBER)'
    print(f"Attendees who want to:  {call}")
    print(f"For you:                http://{host}:{port}/{server.secrets['page']}")
    print(f"Ctrl-C ends it; the notes stay in {folder} until you remove it.", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print()
    finally:
        server.server_close()
    return 0
