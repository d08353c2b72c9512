"""The instructor's side: one page of tasks against seats, live, and, where it was asked for, the address that takes notes.

`python -m pi2zero_course room FOLDER` shows what attendees write into that folder; with `--listen ADDRESS` they send it to this machine.
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

LONGEST = 500  # bytes of a note that are read
MOST = 2000  # notes of a seat
EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104  (they are refused)
EVERY = 3  # s after which the page asks again
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>The room at a glance</title>
<meta name="viewport" content="width=device-width"><style>
body { font: 18px sans-serif; margin: 1.5rem; color: #1c2331; background: #fff }
h1 { font-size: 1.4rem; margin: 0 } #stuck { font-size: 1.4rem; font-weight: bold; margin: .6rem 0 }
.wide { overflow-x: auto } table { border-collapse: collapse }
th, td { padding: .2rem .6rem; border: 1px solid #c8ccd2; text-align: left }
th { background: #eef0f3; font-weight: 600 } td { min-width: 6em }
.right { background: #009e73; color: #000 } .wrong { background: #e69f00; color: #000 } .open { color: #4b5563 }
.here { outline: 3px solid #1c2331; outline-offset: -3px }
</style><h1>The room at a glance</h1><main id="room">ROOM</main>
<p>A frame: where the seat is now. In brackets: tries.</p>
<noscript><meta http-equiv="refresh" content="EVERY"></noscript><script>
setInterval(async () => {
  const room = document.getElementById("room");
  let now;
  try { now = await (await fetch(location.pathname + "/room")).text(); }
  catch { now = "<p>The page's program has ended, or cannot be reached.</p>"; }
  if (now !== room.dataset.shown) { room.dataset.shown = now; room.innerHTML = now; }
}, EVERY * 1000);
</script></html>"""


def room(shown: board.Board, now: float) -> str:
    """The sentence and the table, as HTML."""
    begin = f'<p id="stuck">{html.escape(board.stuck(shown, now))}</p>'
    if not shown.states:
        return begin
    seats = len(shown.states)
    heads = "".join(f'<th scope="col">{html.escape(task)}</th>' for task in shown.tasks)
    sums = "".join(
        f"<td>{shown.through(task)} of {seats} right<br>{len(shown.at_work(task))} at work</td>"
        for task in shown.tasks
    )
    rows = "".join(_row(shown, seat, now) for seat in shown.states)
    return (
        f'{begin}<div class="wide" tabindex="0"><table><tr><th scope="col">seat</th>{heads}<th scope="col">last note</th></tr>'
        f'<tr><th scope="row">all</th>{sums}<td></td></tr>{rows}</table></div>'
    )


def _row(shown: board.Board, seat: int, now: float) -> str:
    states, place = shown.states[seat], shown.places[seat]
    cells = ""
    for task in shown.tasks:
        state = states.get(task)
        kind = (
            "" if state is None else "right" if state.right else "wrong" if state.wrong else "open"
        )
        here = " here" if task == place else ""
        cells += f'<td class="{kind}{here}">{state.text() if state else ""}</td>'
    ago = max(now - states[place].last, 0) // 60
    return f'<tr><th scope="row">{seat}</th>{cells}<td>{"now" if ago < 1 else f"{ago:.0f} min ago"}</td></tr>'


class Room(ThreadingHTTPServer):
    """Takes notes at /WORD, for those who know the word, and shows the page at /PAGE, for the instructor."""

    daemon_threads = True
    request_queue_size = (
        128  # a whole room may press Enter at once; the library's 5 made seats wait
    )

    def __init__(self, folder: Path, address: str, port: int, takes: bool):
        self.folder, self.takes = folder, takes
        self.words = words(folder)
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        super().__init__((address, port), Handler)

    def server_bind(self):
        """Without asking the network for this machine's name, as the library does. A page that was just ended can be begun again
        at once: its last connections hold the port for a minute else."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()


class Handler(BaseHTTPRequestHandler):
    """Answers one request to a Room: without the room's words in its path there is nothing to be seen (404)."""

    timeout = 5  # s that somebody may take to speak
    server_version, sys_version = "pi2zero", ""

    def do_GET(self):
        """The instructor's page, or (PAGE/room) the part of it that is drawn anew."""
        page = f"/{self.server.words['page']}"
        if self.path not in (page, f"{page}/room"):
            return self._say(404)
        shown = room(board.read(self.server.folder), time.time())
        if self.path == page:
            shown = PAGE.replace("EVERY", str(EVERY)).replace("ROOM", shown)
        return self._say(200, shown.encode())

    def do_POST(self):
        """Takes one note: 204; 400 if it is none, is too long, or the room is full."""
        length = self.headers.get("Content-Length", "")
        if not self.server.takes or self.path != f"/{self.server.words['notes']}":
            return self._say(404)
        try:
            if not length.isdecimal() or int(length) > LONGEST:
                raise ValueError("too long")
            note = notes.Note.read(self.rfile.read(int(length)))
            self._keep(note)
        except (ValueError, OSError):
            return self._say(400)
        return self._say(204)

    def _keep(self, note: notes.Note) -> None:
        """Raises ValueError if the seat, or the room, has said enough."""
        file = self.server.folder / f"{note.seat}.jsonl"
        if file.exists():
            if file.stat().st_size > MOST * 100:
                raise ValueError("enough")
        elif len(list(self.server.folder.glob("*.jsonl"))) >= board.MOST:
            raise ValueError("full")
        notes.append(note, self.server.folder)

    def _say(self, status: int, text: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(text)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        """Who sent what from which address is not kept."""


def words(folder: Path) -> dict[str, str]:
    """The two words of this room's addresses; the same when the program is started again."""
    file = folder / ".words.json"
    try:
        file.touch(mode=0o600, exist_ok=False)  # follows no link
        new = True
    except FileExistsError:
        new = False
    found = file.lstat()
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        if new:
            file.unlink()
        why = (
            "this file system does not keep whose it is"
            if new
            else "somebody else may have laid it there"
        )
        raise PermissionError(f"{file} is not yours alone: {why}. Take another folder.")
    if not new:
        return json.loads(file.read_text())
    letters = "abcdefghjkmnpqrstuvwxyz23456789"  # none that is taken for another when it is copied from a wall
    told = {
        "notes": "".join(secrets.choice(letters) for _ in range(6)),
        "page": secrets.token_hex(12),
    }
    file.write_text(json.dumps(told))
    return told


def open_folder(folder: Path, takes: bool) -> None:
    """Make it if need be: for you alone if notes come by the network, else open to write for all, and to list for you alone."""
    if not folder.exists():
        folder.mkdir(parents=True)
        folder.chmod(0o700 if takes else 0o1733)


def serve(folder: Path, listen: str | None, port: int) -> int:
    """Show the page until Ctrl-C. listen: the address of this machine at which attendees' notes are taken, if they are."""
    folder = folder.resolve()
    if listen in EVERYWHERE:
        print(
            f"--listen {listen} is no address that attendees can type. Name this machine's own in the room's network."
        )
        return 2
    try:
        open_folder(folder, takes=bool(listen))
        server = Room(folder, listen or "127.0.0.1", port, takes=bool(listen))
    except (OSError, ValueError, KeyError) as error:
        print(
            f"The room cannot be shown: {error}. Another port: --port 0; another folder: python -m pi2zero_course room FOLDER"
        )
        return 1
    host, port = listen or "127.0.0.1", server.server_address[1]
    host = f"[{host}]" if ":" in host else host
    where = f"http://{host}:{port}/{server.words['notes']}" if listen else folder
    print(
        f'Attendees who want to:  import pi2zero_course; pi2zero_course.join_room("{where}", seat=THEIR_NUMBER)'
    )
    print(f"For you:                http://{host}:{port}/{server.words['page']}")
    print(f"Ctrl-C ends it; the notes stay in {folder} until you remove it.", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print()
    finally:
        server.server_close()
    return 0
