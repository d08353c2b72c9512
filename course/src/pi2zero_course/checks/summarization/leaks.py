"""The check of lab 5's third task: test stories that leaked into training."""

import random
import re

import numpy as np

from pi2zero_course.checks.framework.agree import agree
from pi2zero_course.checks.framework.answers import CheckError, call_answer
from pi2zero_course.checks.framework.task import lab_task
from pi2zero_course.checks.framework.values import is_int
from pi2zero_course.checks.summarization import stories as lab

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
    "short": "all of it, but it has fewer than 8 words, so no run that could be shared",
    "eight": "word for word; it has 8 words, so one run",
    "half": "half of it: 8 of its 16 runs",
    "less": "a little less than half of it: 7 of its 16 runs",
}
WORDS = {"short": 5, "eight": 8, "half": 23, "less": 23}  # of such a test story


def runs(text):
    """The runs of RUN words of a text, in small letters without punctuation."""
    words = re.findall(r"\w+", text.lower())
    return {" ".join(words[at : at + RUN]) for at in range(len(words) - RUN + 1)}


def shares(train, test):
    """For each test story, the largest share of its runs that one training story has."""
    known = [runs(article) for article in train]
    return [
        max((len(own & one) / max(len(own), 1) for one in known), default=0)
        for own in map(runs, test)
    ]


class _Training:
    """A training set into which test stories leak: each of its methods is a kind of leak. draw:
    chance."""

    def __init__(self, stories, draw):
        self.stories, self.draw, self.long, self.first = stories, draw, [], len(stories)

    def exact(self, article, other):
        self.stories.append(article)

    def case(self, article, other):
        self.stories.append(article.upper() if self.draw.random() < 0.5 else article.lower())

    def marks(self, article, other):
        ends = lambda: self.draw.choice([" ...", "!", " ;"])  # noqa: E731
        text = "\n".join(
            re.sub(r'[,"]', "", part).rstrip(".") + ends() for part in lab.sentences(article)
        )
        self.stories.append(re.sub(" ", lambda found: self.draw.choice([" ", "  ", "\t"]), text))

    def added(self, article, other):
        parts = lab.sentences(article)
        self.stories.append(" ".join(self.draw.choice([[other[0], *parts], [*parts, other[-1]]])))

    def digest(self, article, other):
        self.long.append(article)

    def own(self, article, other):
        """It does not leak."""

    def begins(self, article, other):
        self.stories.append(" ".join([*_beginning(lab.sentences(article)), *other]))

    def pieces(self, article, other):
        words = article.split()
        for third, place in enumerate(self.draw.sample(range(self.first), 3)):
            part = words[third * len(words) // 3 : (third + 1) * len(words) // 3]
            self.stories[place] = " ".join([self.stories[place], *part])

    def short(self, article, other):
        self.stories.append(article)

    eight = short

    def half(self, article, other):
        self.stories.append(f"{_first(15, article)} {' '.join(other)}")

    def less(self, article, other):
        self.stories.append(f"{_first(14, article)} {' '.join(other)}")

    def shuffled(self):
        whole = self.stories + [" ".join(self.long)] * bool(self.long)
        self.draw.shuffle(whole)
        return whole


def seeded(seed, count=240, kinds=tuple(KINDS), each=4):
    """(train, test, kind of each test story): articles, of which some test ones are in training.
    Always the same for a seed."""
    draw = random.Random(seed)
    pool = [
        one["article"]
        for one in lab.news.stories("train", count + each * len(kinds), seed=1000 + seed)
    ]
    training, test = _Training(pool[:count], draw), pool[count:]
    kind_of = [kind for kind in kinds for _ in range(each)]
    draw.shuffle(kind_of)
    for place, kind in enumerate(kind_of):
        article = test[place] = _first(WORDS[kind], test[place]) if kind in WORDS else test[place]
        other = lab.sentences(draw.choice(training.stories[: count // 2]))
        getattr(training, kind)(article, other)
    return training.shuffled(), test, kind_of


def _first(count, text):
    """Its first words without marks: anyone who takes o'clock for one word counts as many."""
    return " ".join(re.findall(r"\w+", text)[:count])


def _beginning(parts):
    """As many of a story's first sentences as stay below a third of its words."""
    words = [len(part.split()) for part in parts]
    kept = max(k for k in range(len(parts)) if sum(words[:k]) <= sum(words) / 3 or k <= 1)
    return parts[:kept]


@lab_task(5, 3)
def leaked(function):
    """leaked(train, test) -> the set of the indices of test articles of which half the runs are in
    one training article."""
    agree(lambda: [_judge_leaks(function, *seeded(seed)) for seed in (1, 2)])
    agree(_judge_leaks, function, *seeded(3, kinds=(CLEAN,), each=20))
    return (
        f"Every leaked story and no other, in 2 sets of {4 * len(KINDS)} test stories; none in a "
        "clean set of 20."
    )


def _judge_leaks(function, train, test, kinds):
    right = {index for index, share in enumerate(shares(train, test)) if share >= SHARE}
    given = call_answer(function, list(train), list(test))
    named = (
        given.tolist() if isinstance(given, np.ndarray) else given
    )  # as np.flatnonzero gives them
    if not isinstance(named, set | frozenset | list | tuple) or not all(map(is_int, named)):
        raise CheckError(
            f"leaked returned {type(given).__name__}; a set of whole numbers is due: places in the "
            "list test."
        )
    named = {int(index) for index in named}
    if outside := sorted(index for index in named if not 0 <= index < len(test)):
        raise CheckError(
            f"you name story {outside[0]}, but there are {len(test)} test stories. Asked are "
            "places in test."
        )
    for kind, words in KINDS.items():
        if missed := sorted(index for index in right - named if kinds[index] == kind):
            raise CheckError(
                f"{len(missed)} of {len(right)} leaked test stories are missed, e.g. number "
                f"{missed[0]}.\nIt is in the training set {words}."
            )
    if wrong := sorted(named - right, key=lambda index: kinds[index] == CLEAN):
        first = wrong[0]
        share, words = shares(train, [test[first]])[0], KINDS[kinds[first]]
        raise CheckError(
            f"{len(wrong)} clean test stories are named, e.g. number {first}: of its runs of {RUN} "
            "words, no training story has "
            f"more than {share:.0%}; from {SHARE:.0%} on it counts as leaked.\n"
            + (f"In training is {words}." if words else "")
        )
