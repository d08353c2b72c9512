"""On the kit's ranks, ipyparallel's magics, their options and `activate()` work or are refused."""

import pytest

from .conftest import ran

pytestmark = pytest.mark.long

SETUP = "%%px\nfrom mpi4py import MPI\nrank = MPI.COMM_WORLD.rank"
RAISES = "if rank == 1: raise ValueError('mine')"


@pytest.fixture(scope="module")
def book(visitor):
    ran(visitor, "import pi2zero\ncluster = pi2zero.start(n=3)")
    ran(visitor, SETUP)
    yield visitor
    ran(visitor, "cluster.stop()")


@pytest.fixture(autouse=True)
def _defaults(book):
    ran(book, "cluster.activate()")


def on(*ranks, text="on"):
    return "".join(f"[stdout:{rank}] {text}\n" for rank in ranks)


@pytest.mark.parametrize(
    "options, ranks",
    [
        ("--block", (0, 1, 2)),
        ("-b --stream", (0, 1, 2)),
        ("--no-stream", (0, 1, 2)),
        ("-t 1", (1,)),
        ("--targets 0,2", (0, 2)),
        ("--targets ::2", (0, 2)),
        ("--targets 1:", (1, 2)),
        ("-r", (0, 1, 2)),
        ("--group-outputs=engine", (0, 1, 2)),
        ("--progress-after -1 --signal-on-interrupt SIGINT --no-verbose", (0, 1, 2)),
    ],
)
def test_taken(book, options, ranks):
    assert ran(book, f"%%px {options}\nprint('on')") == on(*ranks)


@pytest.mark.parametrize(
    "options, says",
    [
        ("--progress-after 2", "no bar of its own"),
        ("--signal-on-interrupt SIGKILL", "the stop button sends SIGINT"),
        ("--stream -e", "Choose one"),
        ("--targets 3", "there are ranks 0 to 2"),
        ("--timeout 0", "seconds, more than 0"),
        ("--color red", "unrecognized arguments: --color red"),
    ],
)
def test_refused_in_a_sentence(book, options, says):
    reply = book.run(f"%%px {options}\nprint('on')")
    assert reply.error.startswith("UsageError") and says in reply.error
    assert "on\n" not in reply.text, "and it did not run"


def test_verbose(book):
    assert ran(book, "%%px --verbose\npass") == "Parallel execution on ranks 0, 1 and 2\n"


def test_grouped_by_rank(book):
    cell = "import sys\nprint('out')\nprint('err', file=sys.stderr)\nrank"
    lines = ran(book, f"%%px --group-outputs=engine\n{cell}").splitlines()
    assert lines == [f"[{name}:{rank}] {text}" for rank in range(3) for name, text in
                     (("stdout", "out"), ("stderr", "err"), ("out", rank))]  # fmt: skip


def test_grouped_by_turn(book):
    cell = "from IPython.display import display\ndisplay(f'{rank}a')\ndisplay(f'{rank}b')"
    for options, turns in {
        "": ["0a", "0b", "1a", "1b", "2a", "2b"],
        "-r": ["0a", "1a", "2a", "0b", "1b", "2b"],
    }.items():
        outputs = [
            content
            for kind, content in book.run(f"%%px {options}\n{cell}").outputs
            if kind == "display_data"
        ]
        assert [output["data"]["text/plain"].strip("'") for output in outputs] == turns


def test_configured_targets_hold_for_lines_and_cells(book):
    ran(book, "%pxconfig --targets 1")
    assert ran(book, "%px print('on')") == ran(book, "%%px\nprint('on')") == on(1)
    assert ran(book, "%%px --targets all\nprint('on')") == on(0, 1, 2)
    ran(book, "%pxconfig --targets all --verbose")
    assert ran(book, "%px pass") == "Parallel execution on ranks 0, 1 and 2\n"


def test_result_again(book):
    ran(book, "%%px --targets 1: -o kept\nprint('on')\nrank")
    assert ran(book, "%pxresult") == on(1, 2) + "[out:1] 1\n[out:2] 2\n"
    assert ran(book, "print([str(one) for one in kept.stdout])") == "['on\\n', 'on\\n']\n"


def test_without_waiting(book):
    assert "waits for it, watched" in ran(
        book, "%%px --noblock --out later\nimport time\ntime.sleep(0.5)\nprint('on')"
    )
    assert ran(book, "print(later.done())") == "False\n"
    assert ran(book, "%pxresult") == on(0, 1, 2)
    ran(book, "%pxconfig --noblock")
    assert "waits for it" in ran(book, f"%px {RAISES}")
    assert "Rank 1 raised ValueError" in book.run("%pxresult").text


def test_a_result_that_never_comes_is_watched(book):
    ran(book, "%pxconfig --timeout 3")
    ran(book, "%%px --noblock\nif rank == 0: MPI.COMM_WORLD.recv(source=1)")
    reply = book.run("%pxresult")
    assert reply.error.startswith("RankError") and "recv(source=1)" in reply.text
    ran(book, SETUP)


def test_automatic_cells_are_watched(book):
    ran(book, "%pxconfig --timeout 3")
    assert "enabled" in ran(book, "%autopx")
    try:
        assert ran(book, "print('on')") == on(0, 1, 2)
        assert "Rank 1 raised ValueError" in book.run(RAISES).text
        assert "MPI.COMM_WORLD.Barrier()" in book.run("if rank < 2: MPI.COMM_WORLD.Barrier()").text
    finally:
        assert "disabled" in ran(book, "%autopx")
    ran(book, SETUP)
    assert ran(book, "print('in the notebook')") == "in the notebook\n"


@pytest.mark.parametrize(
    "activate, px, ranks",
    [
        ("cluster.client.activate()", "%%px", (0, 1, 2)),
        ("cluster.client[cluster.view.targets[1:]].activate()", "%%px", (1, 2)),
        ("cluster.view.activate('_all')", "%%px_all", (0, 1, 2)),
    ],
)
def test_ipyparallel_s_activate_keeps_the_watch(book, activate, px, ranks):
    assert ran(book, activate) == ""
    assert ran(book, f"{px}\nprint('on')") == on(*ranks)
    assert "Rank 1 raised ValueError" in book.run(f"{px}\n{RAISES}").text


def test_px_below_the_first_line_says_what_is_wrong(book):
    assert (
        "has to stand in the first line of its cell" in book.run("# the mean\n%%px\nprint(1)").error
    )


def test_a_definition_without_px_is_told(book):
    define = "def half(x):\n    return x / 2"
    assert ran(book, define) == ""
    ran(book, f"%%px\n{define}")
    assert "defined half in the notebook's own process" in ran(
        book, define
    ) and "Is %%px missing?" in ran(book, define)
    assert (
        ran(book, f"%%px\n{define}")
        == ran(book, f"%%px --local\n{define}")
        == ran(book, "half = 3")
        == ""
    )


def test_local(book):
    ran(book, "%%px --local --targets 0\nhere_and_there = 3")
    assert ran(book, "print(here_and_there)") == "3\n"
    assert ran(book, "%px print('here_and_there' in globals())") == on(0, text=True) + on(
        1, 2, text=False
    )
