"""The scores of summaries: ROUGE is what one gets by hand, and the names and numbers are found."""

import pytest

from pi2zero_course.summarization.scores import facts, interval, scores, sentences

# 9 words: a fire burn the old mill / nobodi was hurt
REFERENCE = "A fire burned the old mill.\nNobody was hurt."
# 8 words: the old mill burn down / nobodi was hurt
SUMMARY = "The old mill burned down.\nNobody was hurt."


def mean(found):
    return {name: value for name, (_, value, _) in found.items()}


def percent(value):
    return pytest.approx(value, abs=0.0501)  # they are rounded to one decimal


def f_measure(hits, of_summary, of_reference):
    """Harmonic mean of precision and recall, in percent."""
    precision, recall = hits / of_summary, hits / of_reference
    return 100 * 2 * precision * recall / (precision + recall)


def test_rouge_is_what_one_counts_by_hand():
    found = mean(scores([SUMMARY], [REFERENCE]))
    assert found["rouge1"] == percent(f_measure(7, 8, 9))  # the old mill burn nobodi was hurt
    assert found["rouge2"] == percent(f_measure(4, 7, 8))  # the-old old-mill nobodi-was was-hurt
    assert found["rougeL"] == percent(
        f_measure(6, 8, 9)
    )  # the old mill nobodi was hurt, in this order
    assert found["rougeLsum"] == percent(f_measure(6, 8, 9))  # the old mill; nobodi was hurt
    assert "facts" not in found, "the reference names nothing"


def test_rouge_lsum_pairs_the_lines_in_any_order():
    found = mean(scores(["Nobody was hurt.\nA fire burned the old mill."], [REFERENCE]))
    assert found["rouge1"] == found["rougeLsum"] == pytest.approx(100)
    assert found["rougeL"] == percent(f_measure(6, 9, 9))


def test_words_are_compared_by_their_stems():
    assert mean(scores(["Firemen burning mills"], ["firemen burned mill"]))[
        "rouge1"
    ] == pytest.approx(100)


def test_an_empty_summary_scores_nothing():
    found = scores(["", ""], ["Ann Lee won 3 games.", "The team of Ann lost."])
    assert found == {
        name: [0, 0, 0] for name in ("rouge1", "rouge2", "rougeL", "rougeLsum", "facts")
    }


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The mayor met Ann Lee in Paris.", {"Ann", "Lee", "Paris"}),
        ("Ann Lee won. Paris cheered.", {"Lee"}),  # what begins a sentence may be any word
        (
            "45 people came; 3rd of May, at 9.30 or 10:15.",
            {"45", "3rd", "May", "9", "30", "10", "15"},
        ),
        ("Anne-Marie O'Neil saw Anne-Marie O'Neil.", {"O'Neil", "Anne-Marie"}),
        ("Émile met Zoë.", {"Zoë"}),
        ("", set()),
        ("...", set()),
    ],
)
def test_facts_are_names_and_numbers(text, found):
    assert facts(text) == found


def test_facts_of_the_reference_are_looked_for_as_whole_words():
    texts = ["Lee won 45 games.", "Leeds won 4 games.", "It was fun."]
    references = ["Then Lee won 45 games."] * 2 + [
        "it was fun."
    ]  # the last has no facts and is left out
    assert scores(texts, references)["facts"][1] == pytest.approx((100 + 0) / 2)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("One. Two? Three! Four", ["One.", "Two?", "Three!", "Four"]),
        ('"Come!" she said. "No."', ['"Come!"', "she said.", '"No."']),
        ("It cost 3.5 dollars.", ["It cost 3.5 dollars."]),
        (" One.\n\nTwo. ", ["One.", "Two."]),
        (
            "Rev. J. K. Lee met Mr. Roy. The U.S. paid.",
            ["Rev. J. K. Lee met Mr. Roy.", "The U.S. paid."],
        ),
        ("It was the first. St. Ives won.", ["It was the first.", "St. Ives won."]),
    ],
)
def test_sentences(text, found):
    assert sentences(text) == found


def test_intervals_are_always_the_same_and_hold_the_mean():
    values = [float(value) for value in range(100)]
    low, middle, high = interval(values)
    assert interval(values) == [low, middle, high]
    assert low < middle < high and middle == 49.5
    assert (high - low) / 2 == pytest.approx(
        1.96 * 28.87 / 10, rel=0.1
    )  # of the normal distribution; their deviation is 28.87


def test_an_interval_is_narrower_for_more_values():
    wide, narrow = interval([0.0, 100.0] * 10), interval([0.0, 100.0] * 1000)
    assert wide[1] == narrow[1] == 50 and wide[2] - wide[0] > 5 * (narrow[2] - narrow[0])


def test_values_that_are_all_the_same_have_no_width():
    assert interval([7.25]) == interval([7.25] * 9) == [7.2, 7.2, 7.2]


def test_the_scores_are_the_means_over_the_stories():
    one, other = (mean(scores([text], [REFERENCE])) for text in (SUMMARY, REFERENCE))
    both = scores([SUMMARY, REFERENCE], [REFERENCE] * 2)
    for name, (low, middle, high) in both.items():
        assert middle == pytest.approx((one[name] + other[name]) / 2, abs=0.1501)
        assert low <= middle <= high


@pytest.mark.parametrize(("texts", "references"), [([], []), (["a"], []), (["a"], ["a", "b"])])
def test_summaries_and_references_have_to_be_as_many(texts, references):
    with pytest.raises(
        ValueError, match=f"There are {len(texts)} summaries for {len(references)} references"
    ):
        scores(texts, references)
