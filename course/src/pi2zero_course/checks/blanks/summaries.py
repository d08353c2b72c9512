"""The checks of the blanks in notebook 10 that stay in the notebook's kernel."""

import re
from collections import Counter

from pi2zero_course.checks.blanks import blank
from pi2zero_course.checks.blanks.compare import compare, same
from pi2zero_course.checks.blanks.names import with_names
from pi2zero_course.checks.framework.base import named
from pi2zero_course.summarization.scores import sentences


def _words(text):
    return re.findall("[a-z0-9]+", text.lower())


def _counts(reference, text):
    return (Counter(_words(each)) for each in (reference, text))


def _rouge1(reference, text):
    a, b = _counts(reference, text)
    return 2 * (a & b).total() / (a.total() + b.total())


@blank
def rouge1(function):
    """rouge1(reference, text) -> the F-measure of single words."""

    def run(reference, text):
        with with_names(function, words=_words):
            return function(reference, text)

    def share(which):
        def measure(reference, text):
            a, b = _counts(reference, text)
            return (a & b).total() / (a, b)[which].total()

        return measure

    def sets(reference, text):
        a, b = (set(counts) for counts in _counts(reference, text))
        return 2 * len(a & b) / (len(a) + len(b))

    mistakes = [
        (share(0), "That is the recall: the share of the reference's words that the text has."),
        (share(1), "That is the precision: the share of the text's words that the reference has."),
        (
            sets,
            "A word that comes twice in both counts twice: & of two Counters keeps the smaller count.",
        ),
        (
            lambda reference, text: (share(0)(reference, text) + share(1)(reference, text)) / 2,
            "The harmonic mean is due.",
        ),
        (
            lambda reference, text: _rouge1(reference, text) / 2,
            "Twice the common words, over the words of both.",
        ),
    ]
    cases = [
        ("the cat sat on the mat", "the dog saw the cat by the door"),
        ("A fire, a fire!", "a fire"),
        ("yes", "no"),
    ]
    compare(named(function, run), _rouge1, cases, mistakes)
    return "It is the harmonic mean of precision and recall, in words with their counts."


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


def _same_lines(mine, due, tolerance):
    """ROUGE-1 does not know in which order the lines stand."""
    texts = isinstance(mine, str) and isinstance(due, str)
    return (
        sorted(mine.split("\n")) == sorted(due.split("\n")) if texts else same(mine, due, tolerance)
    )


@blank
def oracle(function):
    """oracle(article, reference) -> up to three sentences, chosen one by one for the best ROUGE-1, as lines."""

    def run(article, reference):
        with with_names(function, sentences=sentences, rouge1=_rouge1):
            return function(article, reference)

    def alone(article, reference):
        parts = sorted(sentences(article), key=lambda part: -_rouge1(reference, part))
        return "\n".join(parts[:3])

    mistakes = [
        (
            lambda a, r: _greedy(a, r, stop=False),
            "A sentence that does not raise the score is not taken: it may be fewer than three.",
        ),
        (lambda a, r: _greedy(a, r, most=1), "Up to three sentences, one after the other."),
        (
            lambda a, r: _greedy(a, r, most=9),
            "Three sentences at most, also if a fourth raises the score.",
        ),
        (alone, "Each sentence is to be judged together with those chosen before, not alone."),
        (lambda a, r: _greedy(a, r).split("\n"), "The lines are due as one text: '\\n'.join(...)."),
        (lambda a, r: _greedy(a, r).replace("\n", " "), "Each sentence on a line of its own."),
    ]
    fire = "A fire burned in the bakery. It burned for an hour. Nobody was hurt. The mayor came late. It rained."
    cases = [  # in no round do two sentences raise the score equally: which of them comes first would be a matter of taste
        (fire, "A fire burned in the bakery for an hour. Nobody was hurt."),
        (fire, "A fire burned in the bakery for an hour. Nobody was hurt. The mayor came late."),
        (fire, "The mayor came late."),
        (fire, "It rained. Nobody came."),
    ]
    compare(named(function, run), _greedy, cases, mistakes, alike=_same_lines)
    return "It takes sentences as long as they raise ROUGE-1, and three at most."
