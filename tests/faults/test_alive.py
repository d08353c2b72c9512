"""What must live: ranks that compute, print, publish, read, download, sleep or wait for such ranks.

Real ranks. Each case takes three times the cell's time-out. PI2ZERO_FAULTS=full takes 60 s each,
for reports/hangs.md.
"""

import os

import pytest

from .kernel import Notebook

SECONDS, TIMEOUT = (60, 20) if os.environ.get("PI2ZERO_FAULTS") == "full" else (4.5, 1.5)

SETUP = f"""%%px
from mpi4py import MPI
comm = MPI.COMM_WORLD
rank = comm.rank
import os, subprocess, sys, time, urllib.request
import numpy as np, torch, torch.distributed as dist
from ipyparallel.engine.datapub import publish_data
from pi2zero import ranks
me = ranks.join()
T = {SECONDS}
def sized(work, small, power):
    # The size at which work(size) takes T seconds and some more, from the best of six small ones \
(other work disturbs
    # some): time grows as size**power.
    took = []
    for _ in range(6):
        start = time.perf_counter()
        work(small)
        took.append(time.perf_counter() - start)
    return int(small * (1.6 * T / min(took)) ** (1 / power))
def square(n):
    a = np.ones((n, n), dtype=np.float32)
    a @ a
def backward(n):
    x = torch.ones(n, n, requires_grad=True)
    (x @ x).sum().backward()
SERVER = '''
import http.server, socketserver, sys, time
class Slow(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
        time.sleep({SECONDS}); self.wfile.write(b"late")
    def log_message(self, *args): pass
with socketserver.TCPServer(("127.0.0.1", 0), Slow) as server:
    print(server.server_address[1], flush=True)
    server.handle_request()
'''
CHILD = '''
import time
from mpi4py import MPI
parent = MPI.Comm.Get_parent()
end = time.monotonic() + {SECONDS}
while time.monotonic() < end: pass
parent.Barrier(); parent.Disconnect()
'''
"""

ALIVE = {
    "prints now and then": "for _ in range(3):\n    time.sleep(T / 3)\n    print('on', flush=True)",
    "publishes now and then": (
        "for i in range(3):\n    time.sleep(T / 3)\n    publish_data({'progress': i / 3})"
    ),
    "one matrix product": "if rank == 0:\n    n = sized(square, 1000, 3)\n    square(n)",
    "one backward()": "if rank == 0:\n    n = sized(backward, 800, 3)\n    backward(n)",
    "one call that holds Python's lock": (
        "if rank == 0:\n    n = sized(lambda n: sum(range(n)), 10**7, 1)\n    sum(range(n))"
    ),
    # For longer than the time-out times hang.TRANSFER, and others wait in that very call
    "an allreduce of what takes long, in one statement": (
        "n = sized(lambda n: sum(range(n)), 10**7, 1) if rank == 0 else 0\n"
        "comm.allreduce(sum(range(2 * n)))"
    ),
    "a loop of Python": "end = time.monotonic() + T\nwhile time.monotonic() < end: pass",
    "time.sleep": "time.sleep(T)",
    "top-level await": "import asyncio\nawait asyncio.sleep(T)",
    "another program, as a compiler": (
        "subprocess.run([sys.executable, '-c', f'import time; time.sleep({T})'], check=True)"
    ),
    "reads from a slow pipe": "assert os.popen(f'sleep {T}; echo there').read() == 'there\\n'",
    "downloads from a slow server": (
        "server = subprocess.Popen([sys.executable, '-c', SERVER],"
        " stdout=subprocess.PIPE, text=True)\n"
        "url = f'http://127.0.0.1:{int(server.stdout.readline())}'\n"
        "assert urllib.request.urlopen(url).read() == b'late'"
    ),
    "others wait in Barrier for one that computes": (
        "if rank == 1:\n    end = time.monotonic() + T\n"
        "    while time.monotonic() < end: pass\ncomm.Barrier()"
    ),
    "others wait in recv for one that sleeps": (
        "if rank == 0:\n    time.sleep(T)\n    comm.send(1, dest=1)\n"
        "    comm.send(1, dest=2)\nelse:\n    comm.recv(source=0)"
    ),
    "others wait in gloo for one long call": (
        "if rank == 2:\n    square(sized(square, 1000, 3))\n"
        "x = torch.ones(2)\ndist.all_reduce(x)\nassert x[0] == 3"
    ),
    "others ask again and again, one computes": (
        "if rank == 0:\n    time.sleep(T)\n"
        "    for other in (1, 2):\n        comm.send(1, dest=other)\nelse:\n"
        "    while not comm.iprobe(source=0):\n        time.sleep(0.01)\n    comm.recv(source=0)"
    ),
    "asks a subprocess again and again": (
        "p = subprocess.Popen(['sleep', str(T)])\nwhile p.poll() is None: time.sleep(0.05)"
    ),
    "waits for a message that a thread will send": (
        "import threading\nother = comm.size - 1 - rank\n"
        "threading.Thread(target=lambda: (time.sleep(T), comm.send(1, dest=other))).start()\n"
        "comm.recv(source=other)"
    ),
    "a parent waits for children that it spawned": (
        "if rank == 0:\n"
        "    child = MPI.COMM_SELF.Spawn(sys.executable, ['-c', CHILD], maxprocs=1)\n"
        "    child.Barrier()\n    child.Disconnect()"
    ),
    "all-reduce after all-reduce": (
        "end = time.monotonic() + T\nx = np.ones(2**20)\n"
        "while comm.bcast(time.monotonic() < end):\n    comm.Allreduce(MPI.IN_PLACE, x)"
    ),
}


@pytest.fixture(scope="module")
def ranks():
    book = Notebook()
    spawns = (
        "import os\nos.environ['OMPI_MCA_btl'] = 'self,sm,tcp'"
        "  # docs/shared_host.md: ranks that spawn need TCP"
    )
    assert (reply := book.run(f"{spawns}\nimport pi2zero\ncluster = pi2zero.start(n=3)")).ok, (
        reply.text
    )
    yield book
    book.close()


@pytest.mark.parametrize("name", ALIVE)
def test_lives(ranks, account, name):
    assert (reply := ranks.run(SETUP)).ok, reply.text
    reply = ranks.run(f"%%px --timeout {TIMEOUT}\n{ALIVE[name]}", timeout=60 + 10 * SECONDS)
    kept = ranks.run("%%px\nprint(T)")
    end = "ended by itself" if reply.ok else reply.error[:60]
    account("alive", name, f"{reply.seconds:.0f} s", end, "kept" if kept.ok else "gone")
    assert reply.ok, reply.text
    assert reply.seconds > 2 * TIMEOUT, "too short to show anything"
    assert kept.ok


def test_where_the_ranks_are_is_said_meanwhile_and_the_stop_button_ends_it(ranks):
    assert ranks.run(SETUP).ok
    reply = ranks.run(
        "%%px --timeout 1\nprint('on', flush=True)\nwhile rank == 1: pass\ncomm.Barrier()",
        interrupt_after=6,
        watched=True,
    )
    said = [
        content["data"]["text/plain"]
        for kind, content in reply.outputs
        if kind.endswith("display_data")
    ]
    (note,) = {
        line for text in said for line in text.splitlines() if line.startswith("  rank 1: works")
    }
    assert note == "  rank 1: works: cell line 2:  while rank == 1: pass"
    assert any(
        "  ranks 0 and 2: waits for other ranks: cell line 3:  comm.Barrier()" in text
        for text in said
    )
    assert any("The stop button ends it." in text for text in said)
    assert "s; " in said[-1], "only the summary is left"
    assert "You interrupted the cell" in reply.text
