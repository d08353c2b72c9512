"""How good is a summary? ROUGE with intervals, and the share of right names and numbers."""

import re
import statistics

import numpy as np

from pi2zero.requirements import require_package

__all__ = ["facts", "interval", "scores", "sentences", "story_by_story"]

_TITLES = [
    *("Mr", "Mrs", "Ms", "Dr", "Rev", "Prof", "Gen", "Sen"),
    *("Rep", "Gov", "Lt", "Col", "Capt", "Sgt", "St", "[A-Z]"),
]
_GOES_ON = "".join(rf"(?<!\b{title}\.)" for title in _TITLES)


def sentences(text: str) -> list[str]:
    """The sentences of a text: split after . ? or !, or after a quotation that ends so.

    Not after a title or an initial, so "in the U.S. He said" stays one: in news, "the U.S.
    president" is far more frequent.
    """
    return re.split(rf'(?<=[.?!]){_GOES_ON}\s+|(?<=[.?!]")\s+', text.strip())


def facts(text: str) -> set[str]:
    """The names and numbers of a summary: capitalised words within a sentence, and words that begin
    with a digit. A text without capital letters has only numbers.
    """
    words = [re.findall(r"[\w'-]+", sentence) for sentence in sentences(text)]
    names = {word for sentence in words for word in sentence[1:] if word[0].isupper()}
    return names | {word for sentence in words for word in sentence if word[0].isdigit()}


def scores(texts: list[str], references: list[str]) -> dict[str, list[float]]:
    """{name: [low, mean, high]} in percent: F-measures "rouge1", "rouge2", "rougeL", "rougeLsum"
    with stemming, and "facts".

    low and high: the 95 % interval of the mean, from 1,000 resamples of the stories. facts: the
    share of a reference's names and numbers that its summary has; stories without any are left out.
    Sentences are on lines of their own (for rougeLsum). Sources: Lin, ROUGE: A package for
    automatic evaluation of summaries, 2004; Google's rouge-score.
    """
    found = story_by_story(texts, references)
    return {name: interval(values) for name, values in found.items() if not np.isnan(values).all()}


def story_by_story(texts: list[str], references: list[str]) -> dict[str, np.ndarray]:
    """The same scores of each story, to compare two summarizers; nan: a reference without facts."""
    require_package("rouge_score", "summaries", "pi2zero-course")
    from rouge_score.rouge_scorer import RougeScorer

    if not texts or len(texts) != len(references):
        raise ValueError(
            f"There are {len(texts)} summaries for {len(references)} references. "
            "Give one for each, and at least one."
        )
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL", "rougeLsum"], use_stemmer=True)
    found = {name: [] for name in (*scorer.rouge_types, "facts")}
    for text, reference in zip(texts, references, strict=True):
        for name, score in scorer.score(reference, text).items():
            found[name].append(100 * score.fmeasure)
        wanted = facts(reference)
        has = wanted & set(re.findall(r"[\w'-]+", text))
        found["facts"].append(100 * len(has) / len(wanted) if wanted else np.nan)
    return {name: np.array(values) for name, values in found.items()}


def interval(values: list[float]) -> list[float]:
    """[low, mean, high]: the mean and its 95 % interval, rounded to one decimal. nan is left out.

    Efron's percentile bootstrap with 1,000 resamples, always the same ones.
    """
    require_package("scipy", "summaries", "pi2zero-course")
    from scipy.stats import bootstrap

    values = [value for value in values if not np.isnan(value)]
    mean = statistics.fmean(values)
    if len(set(values)) == 1:
        return [round(mean, 1)] * 3  # nothing to resample
    found = bootstrap(
        (values,), np.mean, n_resamples=1000, method="percentile", rng=0
    ).confidence_interval
    return [round(float(value), 1) for value in (found.low, mean, found.high)]
