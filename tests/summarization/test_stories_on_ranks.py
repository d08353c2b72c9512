"""Stories on ranks: one copy per host, the numbers of one process; a fault in a file ends all."""

import pytest
from test_local_copies import as_lines, folder_of_lines, rows
from worlds import checks

pytestmark = pytest.mark.long

TEXT = """
import gc, pickle
from pathlib import Path
from pi2zero_course.summarization import data
from pi2zero_course.summarization.data import on_ranks

source, broken = {source!r}, {broken!r}
said = []
stories = on_ranks.load(me, source, say=said.append)
files = [None] * me.world_size
dist.all_gather_object(files, [part["filename"] for part in stories.splits["train"].cache_files])
tell("one copy", all(each == files[0] and each for each in files))
tell("only rank 0 says what it reads", bool(said) == (me.rank == 0))
alone = data.load(source, say=said.append)
tell("the same stories", \
all(list(stories.splits[name]) == list(alone.splits[name]) for name in data.SPLITS))

def encode(some):
    assert len(some["article"]) <= 7
    return [([len(word) for word in a.split()], [] if a.endswith("3 .") else [70_000, len(h)])
            for a, h in zip(some["article"], some["highlights"])]

shares = []
made = on_ranks.tokenized(stories.splits["train"], encode, at_once=7, report=shares.append)
due = [pair for first in range(0, len(alone.splits["train"]), 7) \
for pair in encode(alone.splits["train"][first : first + 7])]
same = len(made) == len(due) and all([list(a), list(h)] == [list(x), list(y)] \
for (a, h), (x, y) in zip(made, due))
tell("the same numbers, in the same order", \
same and [list(part) for part in made[-1]] == [list(part) for part in due[-1]])
tell("lengths", [list(each) for each in made.lengths()] == \
[[len(a) for a, _ in due], [len(h) for _, h in due]])
tell("it says how far it is", shares[-1:] == [1.0] and shares == sorted(shares))
tell("64-bit numbers, for torch", torch.tensor(made[0][0]).dtype == torch.int64)
try:
    made[len(made)]
except IndexError as error:
    tell("no row beyond the last", "none has the number" in str(error))
try:
    pickle.dumps(made)
except TypeError as error:
    tell("rows stay where they are", "stay on their ranks" in str(error))
few = on_ranks.tokenized(stories.splits["train"].select([0]), encode)
tell("fewer stories than ranks", \
len(few) == 1 and [list(part) for part in few[0]] == [list(part) for part in due[0]])
mine = Path(made._own.name)
del made, few
gc.collect()
tell("its files go with it", not mine.exists())
try:
    on_ranks.load(me, broken, say=said.append)
except ValueError as error:
    tell("what is wrong is said on all ranks", \
"train.jsonl, line 1, column 2: not JSON" in str(error))
embedded = on_ranks.load(me, "embedded", counts={{"train": 5, "test": 5}}, say=said.append)
tell("the kit's own", len(embedded.splits["train"]) == 5 and embedded.name == "embedded")
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stories")
    source, broken = folder / "good", folder / "broken"
    source.mkdir(), broken.mkdir()
    folder_of_lines(source, train=as_lines(rows("train", 45)))
    folder_of_lines(broken, train="{\n")
    (folder / "meet").mkdir()
    return checks([1, 3], TEXT.format(source=str(source), broken=str(broken)), folder / "meet")


NAMES = [line.split('"')[1] for line in TEXT.splitlines() if 'tell("' in line]


@pytest.mark.parametrize("name", NAMES)
def test_on_one_rank_and_on_three(found, name):
    assert [world.get(name) for world in found.values()] == [True, True]


HOSTS = """
from pathlib import Path
from pi2zero_course.summarization.data import on_ranks

host, me = ("a", me) if me.rank < 2 else ("b", Rank(me.rank, me.world_size, 0, "cpu", "gloo"))
(private := Path({folder!r}) / host).mkdir(exist_ok=True)
os.chdir(private)  # as each host's temporary folder: a name is that of another file, or of none
on_ranks.host_id = lambda: host
asked = []

class Stories:
    name = "stories.jsonl"

    def __reduce__(self):  # as a dataset: unpickled, it opens its file
        return open, (f"of {{host}}",)

def load(source, **options):
    asked.append(source)
    Path(f"of {{host}}").write_text(host)
    return Stories()

on_ranks.data.load = load
tell("each opens its own host's", on_ranks.load(me, "stories.jsonl").read() == host)
tell("the first of each host reads", asked == ["stories.jsonl"] * (me.local_rank == 0))

class Missing(Stories):
    def __reduce__(self):
        return open, ("of nobody",)

on_ranks.data.load = lambda source, **options: load(source) if host == "a" else Missing()
try:
    on_ranks.load(me, "stories.jsonl")
except OSError as error:
    tell("a file that is gone on one host is said on all", "of nobody" in str(error))
"""


def test_on_two_hosts(tmp_path):
    (meet := tmp_path / "meet").mkdir()
    names = [line.split('"')[1] for line in HOSTS.splitlines() if 'tell("' in line]
    assert checks([3], HOSTS.format(folder=str(tmp_path)), meet) == {3: dict.fromkeys(names, True)}
