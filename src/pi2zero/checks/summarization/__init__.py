"""The checks of lab 5, a summarizer. Each is called on all ranks, in a `%%px` cell: `check.task1(choose)`.

Tasks 1, 3 and 4 are here; 2 in checks/summarization_curves.py, 5 in checks/summarization_train.py.
"""

import random
import re

import numpy as np
from mpi4py import MPI

from pi2zero import costs, ranks
from pi2zero.checks.framework.base import CheckFailed, answer, is_whole, task
from pi2zero.checks.summarization import stories as shared
from pi2zero.checks.summarization.curves import task2  # noqa: F401 - called through this
from pi2zero.checks.summarization.train import task5  # noqa: F401 - module, all of them
from pi2zero.checks.zero_memory import size
from pi2zero.checks.zero_memory.ranks import everywhere

# Task 1 -----------------------------------------------------------------------------------------------------------------

WANTED = 8  # stories a rank, at least
T5_SMALL, STORY = 60_506_624, 50_000_000
MACHINES = [  # limit in bytes, world size, parameters, bytes of a story
    *[(limit * 1e9, 2, T5_SMALL, STORY) for limit in (1.1, 1.2, 1.38, 2, 8, 0.9, 0.7)],
    *[(limit * 1e9, 8, T5_SMALL, 23_456_789.5) for limit in (0.25, 0.35, 0.5, 0.6, 1.2)],
    *[(1.5e9, 1, T5_SMALL, STORY), (1.2e9, 1, T5_SMALL, STORY)],
    *[(costs.zero_total(2**20, 4, stage) + WANTED * 2**20, 4, 2**20, 2**20) for stage in range(4)],  # 8 to the byte
    (costs.zero_total(2**20, 4, 3) + WANTED * 2**20 - 1, 4, 2**20, 2**20),  # one byte less
]


@task(1)
def task1(choose):
    """choose(limit, world_size, parameters, bytes_per_story) -> (stage, stories a rank), or None."""
    everywhere(lambda: [_judge_choice(choose, *machine) for machine in MACHINES])
    return f"The lowest stage with room for {WANTED} stories a rank, and as many as fit, or None: {len(MACHINES)} cases."


def _judge_choice(choose, limit, world_size, parameters, each):
    held = [costs.zero_total(parameters, world_size, stage) for stage in range(4)]
    fit = [int((limit - one) // each) for one in held]
    right = next(((stage, fit[stage]) for stage in range(4) if fit[stage] >= WANTED), None)
    mine = answer(choose, limit, world_size, parameters, each)
    case = f"{size(limit)} on each of {world_size} ranks, {parameters:,} parameters, {size(each)} a story: you say {mine!r}"
    if mine is None and right is not None:
        exactly = " To the byte: what fits exactly, fits." if held[right[0]] + WANTED * each == limit else ""
        raise CheckFailed(f"{case}; stage {right[0]} holds {size(held[right[0]])}: {fit[right[0]]} stories fit beside.{exactly}")
    if mine is None:
        return
    if not isinstance(mine, tuple | list) or len(mine) != 2 or not all(map(is_whole, mine)) or not 0 <= mine[0] <= 3:
        raise CheckFailed(f"{case}; two whole numbers are due, (stage 0 to 3, stories a rank), or None.")
    if tuple(mine) == right:
        return
    room = max(fit[mine[0]], 0)
    beside = f"{case}. Stage {mine[0]} holds {size(held[mine[0]])} on a rank, so {room} stories fit beside"
    if right is None:
        raise CheckFailed(f"{beside}. No stage leaves room for {WANTED}, so None is due.")
    if mine[0] < right[0]:
        raise CheckFailed(f"{beside}: fewer than {WANTED}. Take a higher stage.")
    if mine[0] > right[0]:
        exactly = " To the byte: what fits exactly, fits." if held[right[0]] + WANTED * each == limit else ""
        raise CheckFailed(
            f"{case}. Stage {right[0]} leaves room for {fit[right[0]]} stories already: the lowest stage is due.{exactly}"
        )
    known = {
        "That is all ranks together; asked is one rank.": room * world_size,
        "A story's activations lie on one rank: they are not divided by the ranks.": room // world_size,
        "A story's activations lie on one rank, whole: their bytes are not divided.": int(
            (limit - held[mine[0]]) // (each / world_size)
        ),
        "That is the fewest that are wanted; asked is how many fit.": WANTED,
        "The states need room, too: 16 bytes a parameter, of which the stage divides a part.": int(limit // each),
        "Round down: a part of a story does not fit.": room + 1,
    }
    raise CheckFailed(f"{beside}.\n" + next((why for why, value in known.items() if value == mine[1]), ""))


# Task 3 -----------------------------------------------------------------------------------------------------------------

RUN, SHARE = 8, 0.5  # words of a run; share of a test story's runs
CLEAN = "own"  # kinds of test stories that no training story gives away
KINDS = {
    "exact": "word for word",
    "case": "in other letters (capitals)",
    "marks": "with other punctuation and white space",
    "added": "with one sentence added",
    "digest": "inside a long article with other stories",
    CLEAN: "",
    "begins": "only its first sentences: another story goes on from there",
    "pieces": "only a third of it here and a third there, in different stories",
}


def runs(text):
    """The runs of RUN words of a text, in small letters without punctuation."""
    words = re.findall(r"\w+", text.lower())
    return {" ".join(words[at : at + RUN]) for at in range(len(words) - RUN + 1)}


def shares(train, test):
    """For each test story, the largest share of its runs that one training story has."""
    known = [runs(article) for article in train]
    return [max((len(own & one) / max(len(own), 1) for one in known), default=0) for own in map(runs, test)]


def seeded(seed, count=240, kinds=tuple(KINDS), each=4):
    """(train, test, kind of each test story): articles, of which some test ones are in training. Always the same for a seed."""
    draw = random.Random(seed)
    pool = [one["article"] for one in shared.news.stories("train", count + each * len(kinds), seed=1000 + seed)]
    train, test, kind_of = pool[:count], pool[count:], [kind for kind in kinds for _ in range(each)]
    draw.shuffle(kind_of)
    digest = []
    for article, kind in zip(test, kind_of, strict=True):
        parts = shared.sentences(article)
        other = shared.sentences(draw.choice(train[: count // 2]))
        if kind == "exact":
            train.append(article)
        elif kind == "case":
            train.append(article.upper() if draw.random() < 0.5 else article.lower())
        elif kind == "marks":
            train.append("\n".join(re.sub(r'[,"]', "", part).rstrip(".") + draw.choice([" ...", "!", " ;"]) for part in parts))
            train[-1] = re.sub(" ", lambda found: draw.choice([" ", "  ", "\t"]), train[-1])
        elif kind == "added":
            train.append(" ".join(draw.choice([[other[0], *parts], [*parts, other[-1]]])))
        elif kind == "digest":
            digest.append(article)
        elif kind == "begins":
            train.append(" ".join([*_beginning(parts), *other]))
        elif kind == "pieces":
            words = article.split()
            for third, place in enumerate(draw.sample(range(count), 3)):
                part = words[third * len(words) // 3 : (third + 1) * len(words) // 3]
                train[place] = " ".join([train[place], *part])
    train += [" ".join(digest)] * bool(digest)
    draw.shuffle(train)
    return train, test, kind_of


def _beginning(parts):
    """As many of a story's first sentences as stay below a third of its words."""
    words = [len(part.split()) for part in parts]
    kept = max(k for k in range(len(parts)) if sum(words[:k]) <= sum(words) / 3 or k <= 1)
    return parts[:kept]


@task(3)
def task3(leaked):
    """leaked(train, test) -> the set of the indices of test articles of which half the runs are in one training article."""
    everywhere(lambda: [_judge_leaks(leaked, *seeded(seed)) for seed in (1, 2)])
    everywhere(_judge_leaks, leaked, *seeded(3, kinds=(CLEAN,), each=20))
    return f"Every leaked story and no other, in 2 sets of {4 * len(KINDS)} test stories; none in a clean set of 20."


def _judge_leaks(leaked, train, test, kinds):
    right = {index for index, share in enumerate(shares(train, test)) if share >= SHARE}
    mine = answer(leaked, list(train), list(test))
    if not isinstance(mine, set | frozenset | list | tuple) or not all(map(is_whole, mine)):
        raise CheckFailed(f"leaked returned {type(mine).__name__}; a set of whole numbers is due: places in the list test.")
    mine = {int(index) for index in mine}
    if outside := sorted(index for index in mine if not 0 <= index < len(test)):
        raise CheckFailed(f"you name story {outside[0]}, but there are {len(test)} test stories. Asked are places in test.")
    for kind, words in KINDS.items():
        if missed := sorted(index for index in right - mine if kinds[index] == kind):
            raise CheckFailed(
                f"{len(missed)} of {len(right)} leaked test stories are missed, e.g. number {missed[0]}.\n"
                f"It is in the training set {words}."
            )
    if wrong := sorted(mine - right, key=lambda index: kinds[index] == CLEAN):
        first = wrong[0]
        share, words = shares(train, [test[first]])[0], KINDS[kinds[first]]
        raise CheckFailed(
            f"{len(wrong)} clean test stories are named, e.g. number {first}: of its runs of {RUN} words, no training story has "
            f"more than {share:.0%}; from {SHARE:.0%} on it counts as leaked.\n" + (f"In training is {words}." if words else "")
        )


# Task 4 -----------------------------------------------------------------------------------------------------------------

JUDGED, CUT, BELOW = 60, 0.02, 1.0  # validation stories; share that may be cut off; points of ROUGE-1
UNLIMITED = 200  # tokens


@task(4)
def task4(settings):
    """settings(references, tokenizer) -> generate()'s arguments: long enough, not too long, and no chance."""
    me = ranks.join()
    references = [one["highlights"] for one in shared.stories("train", 1000)]
    everywhere(_judge_settings, settings, [f"{text}\n{text}" for text in references], "for references twice as long")
    given = everywhere(_judge_settings, settings, references, "for the training highlights")
    if len({repr(one) for one in MPI.COMM_WORLD.allgather(given)}) > 1:
        raise CheckFailed("the ranks have different settings. All ranks need the same.")
    net = shared.model(me.device)
    free = shared.scored(net, JUDGED, me, max_new_tokens=UNLIMITED, do_sample=False)
    mine = everywhere(_generate, net, me, given)
    if mine["cut off"] > CUT * JUDGED:
        raise CheckFailed(
            f"{mine['cut off']} of {JUDGED} summaries are cut off before their end; {CUT:.0%} may be.\n"
            "Names that are new to the tokenizer take more tokens than those of training: leave a reserve."
        )
    if mine["rouge1"] < free["rouge1"] - BELOW:
        raise CheckFailed(
            f"ROUGE-1 is {mine['rouge1']:.1f}; with as many tokens as the model wants it is {free['rouge1']:.1f}. "
            f"At most {BELOW:g} point below is right."
        )
    return f"ROUGE-1 {mine['rouge1']:.1f} (without a limit {free['rouge1']:.1f}); {mine['cut off']} of {JUDGED} cut off."


def _generate(net, me, given):
    try:
        return shared.scored(net, JUDGED, me, **given)
    except (TypeError, ValueError) as error:  # generate()'s own words; the same on all ranks
        raise CheckFailed(f"generate() does not take {given}: {error}") from None


def _judge_settings(settings, references, where):
    lengths = [len(numbers) for numbers in shared.tokenizer()(references)["input_ids"]]
    given = answer(settings, list(references), shared.tokenizer())
    if not isinstance(given, dict):
        raise CheckFailed(f"settings returned {type(given).__name__}; a dict of generate()'s arguments is due.")
    if given.get("do_sample", True) is not False:
        raise CheckFailed("say do_sample=False: if chance chooses the words, two runs give two ROUGEs.")
    if given.get("max_new_tokens") is None and given.get("max_length") is None:
        raise CheckFailed("no length is set, so generate() ends after 20 tokens, in the middle of a sentence: max_new_tokens.")
    limit = given.get("max_new_tokens", (given.get("max_length") or 0) - 1)
    if not is_whole(limit):
        raise CheckFailed(f"max_new_tokens is {limit!r}; a whole number of tokens is due.")
    if limit > 2 * max(lengths):
        raise CheckFailed(
            f"{where}, {limit:,} tokens are allowed; the longest reference has {max(lengths)}. A summary that finds no end "
            "costs all of them, and every story of its batch waits. At most twice the longest is right."
        )
    most = np.quantile(lengths, 0.95)
    if limit < most:
        words = max(len(text.split()) for text in references)
        why = "That is the most *words*; generate() counts tokens." * (abs(limit - words) <= 1)
        raise CheckFailed(
            f"{where}, {limit} tokens are allowed, but one reference in twenty has more than {most:.0f}, and the longest "
            f"{max(lengths)}: take the length from the references.\n{why}"
        )
    return given
