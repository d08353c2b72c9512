"""The checks of the blanks in notebook 10 that stay in the notebook's kernel."""

import re
from collections import Counter

from pi2zero_course.checks.framework.task import Blank
from pi2zero_course.checks.framework.values import is_same
from pi2zero_course.summarization.scores import sentences


def _words(text):
    return re.findall("[a-z0-9]+", text.lower())


def _counts(reference, text):
    return (Counter(_words(each)) for each in (reference, text))


def _rouge1(reference, text):
    a, b = _counts(reference, text)
    return 2 * (a & b).total() / (a.total() + b.total())


def _share(which):
    def measure(reference, text):
        counts = list(_counts(reference, text))
        return (counts[0] & counts[1]).total() / counts[which].total()

    return measure


def _of_sets(reference, text):
    a, b = (set(counts) for counts in _counts(reference, text))
    return 2 * len(a & b) / (len(a) + len(b))


# rouge1(reference, text) -> the F-measure of single words
rouge1 = Blank(
    name="rouge1",
    reference=_rouge1,
    cases=[
        ("the cat sat on the mat", "the dog saw the cat by the door"),
        ("A fire, a fire!", "a fire"),
        ("yes", "no"),
    ],
    mistakes={
        "That is the recall: the share of the reference's words that the text has.": _share(0),
        "That is the precision: the share of the text's words that the reference has.": _share(1),
        "A word that comes twice in both counts twice: & of Counters keeps the smaller "
        "count.": _of_sets,
        "The harmonic mean is due.": (
            lambda reference, text: (_share(0)(reference, text) + _share(1)(reference, text)) / 2
        ),
    },
    lent={"words": _words},
    verified="It is the harmonic mean of precision and recall, in words with their counts.",
)


def _greedy(article, reference, most=3, stop=True):
    parts, chosen = sentences(article), []
    while len(chosen) < most:
        best = max(parts, key=lambda part: _rouge1(reference, "\n".join([*chosen, part])))
        if stop and _rouge1(reference, "\n".join([*chosen, best])) <= _rouge1(
            reference, "\n".join(chosen)
        ):
            break
        chosen.append(best)
    return "\n".join(chosen)


def _same_lines(value, due, tolerance):
    """ROUGE-1 does not know in which order the lines stand."""
    texts = isinstance(value, str) and isinstance(due, str)
    return (
        sorted(value.split("\n")) == sorted(due.split("\n"))
        if texts
        else is_same(value, due, tolerance)
    )


def _best_alone(article, reference):
    parts = sorted(sentences(article), key=lambda part: -_rouge1(reference, part))
    return "\n".join(parts[:3])


_FIRE = (
    "A fire burned in the bakery. It burned for an hour. Nobody was hurt. The mayor came late. It "
    "rained."
)

# oracle(article, reference) -> up to three sentences, chosen one by one for the best ROUGE-1, as
# lines
oracle = Blank(
    name="oracle",
    reference=_greedy,
    # In no round do two sentences raise the score equally: which of them comes first would be a
    # matter of taste.
    cases=[
        (_FIRE, "A fire burned in the bakery for an hour. Nobody was hurt."),
        (_FIRE, "A fire burned in the bakery for an hour. Nobody was hurt. The mayor came late."),
        (_FIRE, "The mayor came late."),
        (_FIRE, "It rained. Nobody came."),
    ],
    mistakes={
        "A sentence that does not raise the score is not taken: it may be fewer than three.": (
            lambda article, reference: _greedy(article, reference, stop=False)
        ),
        "Up to three sentences, one after the other.": (
            lambda article, reference: _greedy(article, reference, most=1)
        ),
        "Three sentences at most, also if a fourth raises the score.": (
            lambda article, reference: _greedy(article, reference, most=9)
        ),
        "Judge each sentence together with those chosen before, not alone.": _best_alone,
        "The lines are due as one text: '\\n'.join(...).": (
            lambda article, reference: _greedy(article, reference).split("\n")
        ),
    },
    same=_same_lines,
    lent={"sentences": sentences, "rouge1": _rouge1},
    verified="It takes sentences as long as they raise ROUGE-1, and three at most.",
)
