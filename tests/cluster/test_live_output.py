"""What a front end shows of a cell while it runs, and what is left of it in the notebook."""

import re
from itertools import pairwise

import nbformat
import pytest
from nbclient import NotebookClient

from pi2zero.cluster.cell_output import live_bundles, pieces, rank_ranges, show_grouped
from pi2zero.cluster.output_changes import OutputChanges

SETUP = """%%px
import time
from IPython.display import HTML, clear_output, display
from mpi4py import MPI
from tqdm.auto import tqdm
comm = MPI.COMM_WORLD
rank = comm.rank"""
RICH = """%%px
print(f"first of {rank}", flush=True)
handle = display(HTML(f"<b>{rank} begins</b>"), display_id=True)
for step in tqdm(range(6)):
    time.sleep(0.5)
    handle.update(HTML(f"<b>{rank} at {step}</b>"))
print(f"last of {rank}")
if rank == 0: comm.recv(source=1)
else:
    time.sleep(4)
    comm.send(None, dest=0)
HTML("<table></table>")"""
CLEARS = """%%px
for step in range(4):
    clear_output(wait=True)
    print("step", step, "of", rank)
    display(HTML(f"<i>{rank} at {step}</i>"))
    time.sleep(0.6)"""
SHORT = "%%px\ntime.sleep(0.5)\nprint('on')"
MOMENT = """%%px
display({"text/plain": "a moment"}, raw=True, metadata={"pi2zero": {"live": True}})
time.sleep(1.8)
print("on")"""
FAILS = "%%px\nprint('on')\ntime.sleep(2.5)\nx = 1 / (1 - rank)"
CELLS = {"rich": RICH, "clears": CLEARS, "short": SHORT, "moment": MOMENT, "fails": FAILS}


class FrontEnd(NotebookClient):
    """nbclient handles outputs as JupyterLab does, and keeps them as they are stored.

    watched: it says that a person can answer `input()`, as JupyterLab says. seen: for each cell,
    all of its outputs after each message."""

    watched = False

    async def async_start_new_kernel_client(self, **options):
        client = await super().async_start_new_kernel_client(**options)
        client.allow_stdin = self.watched
        return client

    def process_message(self, msg, cell, cell_index):
        try:
            return super().process_message(msg, cell, cell_index)
        finally:
            self.seen[cell_index].append([text_of(output) for output in cell.outputs])


def text_of(output):
    data = output.get("data", {})
    return data.get("text/html") or data.get("text/plain") or output.get("text", "no text")


def run_in(watched):
    sources = ["import pi2zero\ncluster = pi2zero.start(n=2)", SETUP, *CELLS.values()]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in sources])
    front_end = FrontEnd(book, timeout=120, allow_errors=True)
    front_end.watched, front_end.seen = watched, [[] for _ in sources]
    front_end.execute()
    seen = dict(zip(CELLS, front_end.seen[2:], strict=True))
    return dict(zip(CELLS, book.cells[2:], strict=True)), seen


@pytest.fixture(scope="module")
def watched():
    return run_in(watched=True)


@pytest.fixture(scope="module")
def unwatched():
    return run_in(watched=False)


def outputs_of(cell):
    """Without the lanes' summary; pieces of a stream are joined."""
    texts, stream = [], None
    for output in cell.outputs:
        if "pi2zero" in output.get("metadata", {}):
            continue
        if stream and output.get("name") == stream:
            texts[-1] += text_of(output)
        else:
            texts.append(text_of(output))
        stream = output.get("name")
    return texts


@pytest.mark.long
def test_a_person_and_a_program_are_left_with_the_same(watched, unwatched):
    for name, cell in unwatched[0].items():
        if name != "fails":  # its report has times
            assert outputs_of(cell) == outputs_of(watched[0][name])
        assert not [o for o in cell.outputs if "pi2zero" in o.get("metadata", {})], name
        assert "" not in outputs_of(cell), "no empty places"
    rich = "".join(outputs_of(unwatched[0]["rich"]))
    for rank in (0, 1):
        assert f"[stdout:{rank}] first of {rank}\n[stdout:{rank}] last of {rank}\n" in rich
        assert f"<b>{rank} at 5</b>" in rich and f"[out:{rank}]\n<table></table>" in rich
    assert "begins" not in rich
    assert outputs_of(unwatched[0]["clears"]) == [
        "[stdout:0] step 3 of 0\n[stdout:1] step 3 of 1\n[output:0]\n",
        "<i>0 at 3</i>",
        "[output:1]\n",
        "<i>1 at 3</i>",
    ]


@pytest.mark.long
def test_what_a_rank_shows_for_a_moment_is_seen_by_a_person_and_not_kept(watched, unwatched):
    """As the line of a rank that waits for the compiler."""
    assert any("a moment" in page for page in watched[1]["moment"])
    assert not any("a moment" in page for page in unwatched[1]["moment"])
    assert outputs_of(unwatched[0]["moment"]) == ["[stdout:0] on\n[stdout:1] on\n"]


@pytest.mark.long
def test_pictures_tables_and_bars_come_live_and_in_order(watched):
    pages = watched[1]["rich"]
    # Places change one by one, the lanes first: what is there before that is complete.
    settled = ["\n".join(page) for page, new in pairwise(pages) if page[:1] != new[:1]]
    seen = [
        page for page in settled if re.search("<b>0 at [0-4]</b>.*<b>1 at [0-4]</b>", page, re.S)
    ]
    assert seen, "what update_display shows is seen while both ranks run"
    parts = ["first of 0", "first of 1", "[output:0]", "<b>0 at", "0/6", "[output:1]", "<b>1 at"]
    for page in seen:
        places = [page.index(part) for part in parts]
        assert places == sorted(places), page
    cleared = ["\n".join(page) for page in watched[1]["clears"]]
    assert any("<i>1 at 1</i>" in page for page in cleared)
    assert not any("step 0 of 1" in page and "step 2 of 1" in page for page in cleared)


@pytest.mark.long
def test_from_two_seconds_on_a_line_and_lanes_say_what_each_rank_does(watched):
    sleeps = "rank 1 sleeps or reads, cell line 9: time.sleep(4)"
    lines = [page[0] for page in watched[1]["rich"] if page]
    line = next(line for line in lines if sleeps in line)
    assert "cell line 7: if rank == 0: comm.recv(source=1)" in line
    assert line.count('role="img"') == 2
    summaries = {
        name: [o for o in cell.outputs if "pi2zero" in o.get("metadata", {})]
        for name, cell in watched[0].items()
    }
    assert summaries["short"] == [], "a short cell shows nothing new"
    (summary,) = summaries["rich"]
    assert " s; " in summary.data["text/plain"]
    assert summary.metadata.pi2zero.ended and summary.metadata.pi2zero.status
    assert len(summaries["fails"]) == 1
    assert outputs_of(watched[0]["fails"]) == ["[stdout:0] on\n[stdout:1] on\n", "no text"]


def record(rank):
    return {
        "stdout": f"6\nrank {rank}\n",
        "stderr": "hot\n",
        "outputs": [{"data": {"text/plain": "a"}}],
        "execute_result": {"data": {"text/plain": "6"}},
    }


def test_what_is_equal_on_several_ranks_is_shown_once(capsys):
    show_grouped({rank: record(rank) for rank in (0, 1, 2, 4)}, "equal")
    shown = capsys.readouterr()
    assert shown.out == (
        "[0-2,4] 6\n[0] rank 0\n[1] rank 1\n[2] rank 2\n[4] rank 4\n"
        "[output:0-2,4]\n{'text/plain': 'a'}\n[0-2,4] 6\n"
    )
    assert shown.err == "[stderr:0-2,4] hot\n"
    assert rank_ranges([7, 0, 1, 2, 5]) == "0-2,5,7"


def test_long_text_is_sent_in_parts():
    flood = record(0) | {"stdout": "x\n" * 120, "execute_result": None}
    bundles = live_bundles(pieces({0: flood}, "type"))
    assert [bundle["text/plain"].count("\n") + 1 for bundle in bundles] == [50, 50, 22, 1]


def test_a_record_changes_as_a_notebook_would():
    one = record(0)
    changes = OutputChanges(one)

    def receive(kind, **content):
        changes({"header": {"msg_type": kind}, "content": content})

    one["outputs"] = [{"data": {"text/plain": "old"}, "transient": {"display_id": "d"}}]
    receive("update_display_data", data={"text/plain": "new"}, transient={"display_id": "d"})
    receive("update_display_data", data={"text/plain": "other"}, transient={"display_id": "e"})
    assert [output["data"]["text/plain"] for output in one["outputs"]] == ["new"]
    receive("clear_output", wait=True)
    assert one["stdout"], "until the next output comes"
    one["stdout"] += "next\n"
    receive("stream", name="stdout", text="next\n")
    assert (one["stdout"], one["stderr"], one["outputs"]) == ("next\n", "", [])
    receive("clear_output", wait=False)
    assert one["stdout"] == ""
