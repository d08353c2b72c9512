"""A shared file system that answers late, or not at all: node1 has a folder of node2's, by sshfs,
whose server is stopped.
"""

import shutil
import threading

import pytest

from tests.several_hosts.conftest import SETUP, START, SUM, SUMS, Book, nothing_is_left, on

pytestmark = pytest.mark.skipif(
    not shutil.which("sshfs"), reason="a file system by ssh is missing: apt-get install sshfs"
)
TIMEOUT, STOPPED = 2, 7  # s of the cell's time-out, and how long the server answers nothing
FAR, NEAR, PROGRAM = "/tmp/far", "/tmp/near", "/usr/lib/openssh/sftp-server"
LATE = {
    "reads a file": f"print(len(open('{FAR}/1', 'rb').read()))",
    "imports a module": (
        f"import sys\nsys.path.append('{FAR}')\nimport far_module\nprint(far_module.x)"
    ),
    "reads a page of a mapped file": (
        f"import numpy as np\nprint(np.memmap('{FAR}/2')[::4096].sum())"
    ),
}


@pytest.fixture(scope="module")
def book():
    """A kernel with four ranks; /tmp/far on node1 is a folder of node2's."""
    on(
        "node2",
        f"mkdir {NEAR}; cd {NEAR};"
        " for file in 1 2 3; do head -c 8000000 /dev/zero > $file; done;"
        " echo 'x = 1' > far_module.py",
    )
    said = on(
        "node1",
        f"mkdir {FAR}; sshfs node2:{NEAR} {FAR}"
        f" -o sftp_server={PROGRAM},dir_cache=no 2>&1; ls {FAR}",
    )
    assert said.split() == ["1", "2", "3", "far_module.py"], said
    book = Book()
    assert (reply := book.run(START)).ok, reply.text
    yield book
    book.close(now=False)
    on("node1", f"umount {FAR}; rmdir {FAR}")
    on("node2", f"rm -r {NEAR}")
    assert nothing_is_left() == {}


def server(signal):
    on("node2", f"kill -{signal} $(pgrep -x sftp-server)")


@pytest.mark.parametrize("name", LATE)
def test_what_waits_for_files_lives(book, account, name):
    assert book.run(SETUP).ok
    server("STOP")
    later = threading.Timer(STOPPED, server, ["CONT"])
    later.start()
    lines = LATE[name].replace("\n", "\n    ")
    reply = book.run(
        f"%%px --timeout {TIMEOUT}\nif rank == 0:\n    {lines}\ncomm.Barrier()\nprint('there')"
    )
    later.join()
    words = f"a shared file system answers {STOPPED} s late, a rank {name}"
    account(
        "lost",
        words,
        f"{reply.seconds:.0f} s",
        "ended by itself" if reply.ok else reply.error[:60],
        "variables kept",
        "nothing",
    )
    assert reply.ok and reply.text.count("there") == 4, reply.text
    assert reply.seconds > 2 * TIMEOUT
    assert book.run(SUM).text == SUMS


def test_a_full_shared_folder(book, account):
    """A checkpoint from a rank on node1, into a folder of node2's that has 64 KB."""
    far, near = "/tmp/far_small", "/tmp/near_small"
    on(
        "node2",
        f"mkdir {near}; mount -t tmpfs -o size=64k small {near}; echo former > {near}/checkpoint",
    )
    assert on(
        "node1", f"mkdir {far}; sshfs node2:{near} {far} -o sftp_server={PROGRAM} 2>&1; ls {far}"
    ).split() == ["checkpoint"]
    try:
        assert book.run(SETUP).ok
        save = f"with open('{far}/new', 'wb') as file:\n        file.write(bytes(1_000_000))"
        reply = book.run(
            f"%%px\nif rank == 0:\n    {save}\n"
            f"    os.replace(file.name, '{far}/checkpoint')\ncomm.Barrier()"
        )
        assert not reply.ok and "Rank 0 raised OSError" in reply.text, reply.text
        left = on("node2", f"cat {near}/checkpoint; df --output=avail {near}").split()
    finally:
        on("node1", f"umount {far}; rmdir {far}")
        on("node2", f"umount {near}; rmdir {near}")
    account(
        "lost",
        "a shared folder is full",
        f"{reply.seconds:.0f} s",
        reply.error[:75],
        "works, on fresh ranks",
        "nothing",
    )
    assert left == ["former", "Avail", "0"], "what was there is whole, and the folder is full"
    assert book.run(SETUP).ok and book.run(SUM).text == SUMS


def test_a_rank_that_files_hold_for_ever_is_left_behind(book, account):
    """Not even SIGKILL reaches it before the server answers.

    The stop button ends the cell, and fresh ranks work.
    """
    assert book.run(SETUP).ok
    before = len(book.processes())
    server("STOP")
    try:
        cell = (
            "print('on', flush=True)\nif rank == 0:\n"
            f"    open('{FAR}/3', 'rb').read()\ncomm.Barrier()"
        )
        reply = book.run(f"%%px --timeout {TIMEOUT}\n{cell}", interrupt_after=5)
        assert (
            "You interrupted the cell" in reply.text
            and f"rank 0: cell line 3:  open('{FAR}/3'" in reply.text
        ), reply.text
        again = book.run(SETUP)
        assert again.ok and book.run(SUM).text == SUMS, again.text
        held = len(book.processes()) - before
    finally:
        server("CONT")
    assert book.run(SUM).text == SUMS
    words = "a shared file system answers no more; stop button"
    account(
        "lost",
        words,
        f"{reply.seconds - 5:.0f} s",
        "You interrupted the cell",
        "fresh ranks work",
        f"{held} while it is so",
    )
    assert len(book.processes()) == before
