"""Tab and Shift+Tab in `%%px` cells: a rank answers, and never keeps the kernel waiting."""

import os
import signal

import pytest
from timing import assert_within

from .kernel import ANSI, START, Notebook

SETUP = """%%px
from mpi4py import MPI
import numpy as np
comm = MPI.COMM_WORLD
rank, only_there = comm.rank, 1"""
# Code with the cursor at "|", and what is offered there
OFFERED = {
    "%%px\ncomm.All|": "comm.Allreduce",
    "%%px --timeout 5\nx = 1\nnp.random.def|\ny = 2": "np.random.default_rng",
    "%%px\ns = 'π'; ran|": "rank",
    "%%px --targets 1\nonly_o|": "only_on_one",
    "%%px_odd\nonly_o|": "only_on_one",
    "x = 1\n%px comm.All|\ny = 2": "comm.Allreduce",
    "%%px\nonly_h|": None,
    "only_h|": "only_here",
    "only_t|": None,
    "x = only_h|\n%px y": "only_here",
    "%%px --tar|": None,
}


@pytest.fixture(scope="module")
def book():
    book = Notebook()
    for cell in (
        f"{START}\nonly_here = 1\ncluster[1].activate('_odd')",
        "%%px --targets 1\nonly_on_one = 1",
        SETUP,
    ):
        assert (reply := book.run(cell)).ok, reply.text
    yield book
    book.close()


def completions(book, code):
    """The text up to the cursor with each of the matches."""
    cursor, code = code.index("|"), code.replace("|", "")
    content = book.client.complete(code, cursor, reply=True, timeout=30)["content"]
    assert content["status"] == "ok" and content["cursor_end"] == cursor
    return [code[: content["cursor_start"]] + match for match in content["matches"]]


@pytest.mark.parametrize("code", OFFERED)
def test_tab(book, code):
    names = {text.split()[-1] for text in completions(book, code)}
    if OFFERED[code]:
        assert OFFERED[code] in names
    else:
        assert not [name for name in names if name.startswith("only_")]


def inspected(book, code):
    cursor, code = code.index("|"), code.replace("|", "")
    content = book.client.inspect(code, cursor, reply=True, timeout=30)["content"]
    return ANSI.sub("", content["data"].get("text/plain", "")) if content["found"] else None


def test_shift_tab(book):
    assert "Allreduce(" in inspected(book, "%%px\ncomm.Allreduce(|")
    assert "MPICluster" in inspected(book, "cluster|")
    assert inspected(book, "%%px\ncluster|") is None
    assert inspected(book, "comm.Allreduce(|") is None


def test_autopx_sends_every_cell(book):
    book.run("%autopx")
    assert "comm.Allreduce" in completions(book, "comm.All|")
    book.run("%autopx")
    assert not completions(book, "comm.All|")


def test_a_busy_or_hanging_rank_offers_nothing_at_once(book):
    assert book.run("%%px --noblock\nimport time\ntime.sleep(2)").ok
    run = "import time\nbegin = time.monotonic()"
    assert not completions(book, "%%px\ncomm.All|")
    assert book.run("%pxresult").ok
    assert "comm.Allreduce" in [text.split()[-1] for text in completions(book, "%%px\ncomm.All|")]
    pid = int(book.run("print(cluster.info[0]['pid'])").text)
    os.kill(pid, signal.SIGSTOP)
    try:
        assert not completions(book, "%%px\ncomm.All|")
        seconds = book.run(f"{run}\nprint(cluster.ask(0, len, ('',), 9), time.monotonic() - begin)")
        assert seconds.text.startswith("None")
        assert_within(float(seconds.text.split()[1]), 0.5)  # no second question to a busy rank
    finally:
        os.kill(pid, signal.SIGCONT)
    assert book.run("%%px\nassert comm.allreduce(1) == 2").ok
    assert completions(book, "%%px\ncomm.All|")
