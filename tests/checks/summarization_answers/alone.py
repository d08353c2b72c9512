"""Answers to tasks 1, 3 and 4: stage and batch, leaked stories, the length of a summary."""

import difflib
import math
import os
import re

import numpy as np

from pi2zero import costs

from . import right, wrong

# Task 1 -----------------------------------------------------------------------------------------------------------------


@right(1)
def by_hand(limit, world_size, parameters, bytes_per_story):
    n = world_size
    held = [parameters * each for each in (16, 4 + 12 / n, 2 + 14 / n, 16 / n)]
    fits = [(stage, math.floor((limit - one) / bytes_per_story)) for stage, one in enumerate(held)]
    return next((list(fit) for fit in fits if fit[1] >= 8), None)


def room(limit, world_size, parameters, bytes_per_story):
    """[(stage, stories a rank)], what wrong answers have in common. Sent to the ranks before them."""
    held = [costs.zero_total(parameters, world_size, stage) for stage in range(4)]
    return [(stage, int((limit - one) // bytes_per_story)) for stage, one in enumerate(held)]


@right(1)
def all_stages_then_the_first(limit, world_size, parameters, bytes_per_story):
    stories = [
        int((limit - costs.zero_total(parameters, world_size, stage)) // bytes_per_story)
        for stage in range(4)
    ]
    good = [stage for stage in range(4) if stories[stage] >= 8]
    return (good[0], stories[good[0]]) if good else None


@right(1)
def counted_one_by_one(limit, world_size, parameters, bytes_per_story):
    for stage in range(4):
        left = limit - costs.zero_total(parameters, world_size, stage)
        if left < 8 * bytes_per_story:
            continue
        return stage, math.floor(left / bytes_per_story + 1e-12)
    return None


@right(1)
def as_the_double_slash_gives_it(limit, world_size, parameters, bytes_per_story):
    for stage in range(4):
        left = limit - costs.zero_total(parameters, world_size, stage)
        if left >= 8 * bytes_per_story:
            return stage, left // bytes_per_story  # 9.0: the limit is a float


@right(1)
def from_the_highest_stage_down(limit, world_size, parameters, bytes_per_story):
    best = None
    for stage, held in reversed(
        list(enumerate(costs.zero_total(parameters, world_size, s) for s in range(4)))
    ):
        stories = (limit - held) // bytes_per_story
        best = (stage, round(stories)) if stories >= 8 else best
    return best


@wrong(1, "the lowest stage is due")
def the_most_stories(limit, world_size, parameters, bytes_per_story):
    stage, stories = max(
        room(limit, world_size, parameters, bytes_per_story), key=lambda fit: fit[1]
    )
    return (stage, stories) if stories >= 8 else None


@wrong(1, "fewer than 8. Take a higher stage")
def one_story_is_enough(limit, world_size, parameters, bytes_per_story):
    return next(
        (fit for fit in room(limit, world_size, parameters, bytes_per_story) if fit[1] >= 1), None
    )


@wrong(1, "That is all ranks together; asked is one rank")
def the_global_batch(limit, world_size, parameters, bytes_per_story):
    fits = room(limit, world_size, parameters, bytes_per_story)
    return next(((stage, stories * world_size) for stage, stories in fits if stories >= 8), None)


@wrong(1, "No stage leaves room for 8, so None is due")
def stage_3_where_nothing_fits(limit, world_size, parameters, bytes_per_story):
    fits = room(limit, world_size, parameters, bytes_per_story)
    return next((fit for fit in fits if fit[1] >= 8), fits[3])


@wrong(1, "The states need room, too: 16 bytes a parameter")
def stories_without_states(limit, world_size, parameters, bytes_per_story):
    fits = room(limit, world_size, parameters, bytes_per_story)
    return next(
        ((stage, int(limit // bytes_per_story)) for stage, stories in fits if stories >= 8), None
    )


@wrong(1, "Round down: a part of a story does not fit")
def rounded_up(limit, world_size, parameters, bytes_per_story):
    fits = room(limit, world_size, parameters, bytes_per_story)
    return next(((stage, stories + 1) for stage, stories in fits if stories >= 8), None)


@wrong(1, "That is the fewest that are wanted")
def eight(limit, world_size, parameters, bytes_per_story):
    return next(
        (
            (stage, 8)
            for stage, stories in room(limit, world_size, parameters, bytes_per_story)
            if stories >= 8
        ),
        None,
    )


@wrong(1, "To the byte: what fits exactly, fits")
def more_than_eight(limit, world_size, parameters, bytes_per_story):
    return next(
        (fit for fit in room(limit - 1, world_size, parameters, bytes_per_story) if fit[1] >= 8),
        None,
    )


@wrong(1, "two whole numbers are due")
def a_part_of_a_story(limit, world_size, parameters, bytes_per_story):
    fits = room(limit, world_size, parameters, bytes_per_story)
    return next(((stage, stories + 0.25) for stage, stories in fits if stories >= 8), None)


@wrong(1, "two whole numbers are due")
def the_stage_only(limit, world_size, parameters, bytes_per_story):
    return next(
        (
            stage
            for stage, stories in room(limit, world_size, parameters, bytes_per_story)
            if stories >= 8
        ),
        None,
    )


# Task 3 -----------------------------------------------------------------------------------------------------------------


def runs_of(text, words=8, letters=r"[a-z0-9]+", lower=True):
    """What answers have in common. Sent to the ranks before them."""
    found = re.findall(letters, text.lower() if lower else text)
    return {tuple(found[at : at + words]) for at in range(len(found) - words + 1)}


@right(3)
def with_tuples(train, test):
    known = [runs_of(article) for article in train]
    found = []
    for index, article in enumerate(test):
        own = runs_of(article)
        if own and any(2 * len(own & one) >= len(own) for one in known):
            found.append(index)
    return found


@wrong(3, "a little less than half of it: 7 of its 16 runs")
def from_a_third_on(train, test):
    """A mutant of the one above."""
    known = [runs_of(article) for article in train]
    return {
        at
        for at, own in enumerate(map(runs_of, test))
        if own and any(3 * len(own & one) >= len(own) for one in known)
    }


@right(3)
def joined_to_texts(train, test):
    def runs(text):
        found = re.findall(r"\w+", text.lower())
        return {" ".join(found[at : at + 8]) for at in range(max(0, len(found) - 7))}

    known, places = list(map(runs, train)), set()
    for place, own in enumerate(map(runs, test)):
        if own and max(len(own & one) / len(own) for one in known) >= 0.5:
            places.add(place)
    return places


@right(3)
def by_an_index_of_runs(train, test):
    where = {}
    for number, article in enumerate(train):
        for run in runs_of(article):
            where.setdefault(run, set()).add(number)
    found = set()
    for place, own in enumerate(map(runs_of, test)):
        hits = [number for run in own for number in where.get(run, ())]
        if hits and 2 * max(hits.count(number) for number in set(hits)) >= len(own):
            found.add(place)
    return found


@right(3)
def what_is_new_in_it(train, test):
    known = [runs_of(article) for article in train]

    def is_leaked(own):
        return bool(own) and min(len(own - one) for one in known) <= len(own) / 2

    return np.flatnonzero([is_leaked(runs_of(article)) for article in test]).tolist()


@right(3)
def an_array_of_places(train, test):
    known, own = [runs_of(article) for article in train], [runs_of(article) for article in test]
    shares = [max(len(mine & one) for one in known) / max(len(mine), 1) for mine in own]
    return np.flatnonzero(np.array(shares) >= 0.5)


@wrong(3, "leaked returned ndarray; a set of whole numbers is due: places in the list test")
def true_or_false_for_each(train, test):
    return np.array([article in train for article in test])


@wrong(3, "It is in the training set in other letters (capitals)")
def the_same_text(train, test):
    return {index for index, article in enumerate(test) if any(article in one for one in train)}


@wrong(3, "It is in the training set in other letters (capitals)")
def case_counts(train, test):
    known = [runs_of(one, letters=r"[A-Za-z0-9]+", lower=False) for one in train]
    own = [runs_of(one, letters=r"[A-Za-z0-9]+", lower=False) for one in test]
    return {
        index
        for index, mine in enumerate(own)
        if any(2 * len(mine & one) >= len(mine) for one in known)
    }


@wrong(3, "It is in the training set with other punctuation and white space")
def in_small_letters_only(train, test):
    known = [runs_of(one, letters=r"\S+") for one in train]
    return {
        index
        for index, one in enumerate(test)
        if any(2 * len(runs_of(one, letters=r"\S+") & k) >= 15 for k in known)
    }


@wrong(3, "It is in the training set with one sentence added")
def equal_after_normalising(train, test):
    known = {" ".join(re.findall(r"\w+", one.lower())) for one in train}
    return {
        index
        for index, one in enumerate(test)
        if " ".join(re.findall(r"\w+", one.lower())) in known
    }


@wrong(3, "It is in the training set inside a long article with other stories")
def share_of_the_training_story(train, test):
    known = [runs_of(one) for one in train]
    return {
        index
        for index, one in enumerate(test)
        if any(k and 2 * len(runs_of(one) & k) >= len(k) for k in known)
    }


@wrong(3, "it has fewer than 8 words, so no run")
def half_of_nothing(train, test):
    known = [runs_of(article) for article in train]
    own = [runs_of(article) for article in test]
    return {
        index
        for index, mine in enumerate(own)
        if any(2 * len(mine & one) >= len(mine) for one in known)
    }


@wrong(3, "clean test stories are named")
def one_run_is_enough(train, test):
    known = set().union(*(runs_of(one) for one in train))
    return {index for index, one in enumerate(test) if runs_of(one) & known}


@wrong(3, "In training is only a third of it here and a third there, in different stories")
def all_training_stories_together(train, test):
    known = set().union(*(runs_of(one) for one in train))
    return {
        index
        for index, one in enumerate(test)
        if 2 * len(runs_of(one) & known) >= max(1, len(runs_of(one)))
    }


@wrong(3, "clean test stories are named")
def single_words(train, test):
    known = [runs_of(one, words=1) for one in train]
    return {
        index
        for index, one in enumerate(test)
        if any(2 * len(runs_of(one, 1) & k) >= len(runs_of(one, 1)) for k in known)
    }


@wrong(3, "It is in the training set half of it: 8 of its 16 runs")
def more_than_half(train, test):
    known = [runs_of(one) for one in train]
    return {
        index
        for index, one in enumerate(test)
        if any(2 * len(runs_of(one) & k) > len(runs_of(one)) for k in known)
    }


@wrong(3, "it has 8 words, so one run")
def without_the_last_run(train, test):
    def but_one(text):
        words = re.findall(r"\w+", text.lower())
        return {tuple(words[at : at + 8]) for at in range(len(words) - 8)}

    known = [but_one(one) for one in train]
    own = [but_one(one) for one in test]
    return {
        index
        for index, mine in enumerate(own)
        if mine and any(2 * len(mine & one) >= len(mine) for one in known)
    }


@wrong(3, "Asked are places in test")
def places_in_training(train, test):
    own = [runs_of(one) for one in test]
    return {
        place
        for place, one in enumerate(map(runs_of, train))
        if any(2 * len(mine & one) >= len(mine) for mine in own)
    }


@wrong(3, "had not returned after 6 s of the processor's time")
def letter_by_letter(train, test):
    alike = lambda a, b: difflib.SequenceMatcher(None, a, b, autojunk=False).ratio()  # noqa: E731
    return {
        index
        for index, one in enumerate(test)
        if max(alike(one.lower(), k.lower()) for k in train) > 0.6
    }


# Task 4 -----------------------------------------------------------------------------------------------------------------


@right(4)
def the_longest_and_a_half(references, tokenizer):
    longest = max(len(tokenizer(text)["input_ids"]) for text in references)
    return {"max_length": longest * 3 // 2, "do_sample": False, "num_beams": 1}


def lengths_of(references, tokenizer):
    """What answers have in common. Sent to the ranks before them."""
    return [len(numbers) for numbers in tokenizer(references)["input_ids"]]


@right(4)
def nearly_twice_the_longest(references, tokenizer):
    return {"max_new_tokens": 2 * max(lengths_of(references, tokenizer)) - 1, "do_sample": False}


@right(4)
def the_longest_and_beams_of_one(references, tokenizer):
    return {
        "max_new_tokens": math.ceil(1.6 * max(map(len, tokenizer(references)["input_ids"]))),
        "num_beams": 1,
        "do_sample": False,
    }


@right(4)
def a_half_more_in_numpy(references, tokenizer):
    longest = np.max([len(tokenizer(text).input_ids) for text in references])
    return dict(max_new_tokens=int(longest + longest // 2), do_sample=False)


@wrong(4, "no length is set, so generate() ends after 20 tokens")
def only_greedy(references, tokenizer):
    return {"do_sample": False}


@wrong(4, "That is the most *words*; generate() counts tokens")
def words(references, tokenizer):
    return {"max_new_tokens": max(len(text.split()) for text in references), "do_sample": False}


@wrong(4, "At most twice the longest is right")
def letters(references, tokenizer):
    return {"max_new_tokens": max(map(len, references)), "do_sample": False}


@wrong(4, "At most twice the longest is right")
def much(references, tokenizer):
    return {"max_new_tokens": 512, "do_sample": False}


@wrong(4, "but one reference in twenty has more than")
def the_mean(references, tokenizer):
    return {"max_new_tokens": round(np.mean(lengths_of(references, tokenizer))), "do_sample": False}


@wrong(4, "for references twice as long, 60 tokens are allowed")
def a_number_that_fits_today(references, tokenizer):
    return {"max_new_tokens": 60, "do_sample": False}


@wrong(4, "if chance chooses the words, two runs give two ROUGEs")
def by_chance(references, tokenizer):
    return {"max_new_tokens": 2 * max(lengths_of(references, tokenizer)), "do_sample": True}


@wrong(4, "a whole number of tokens is due")
def a_quantile_not_rounded(references, tokenizer):
    return {
        "max_new_tokens": np.quantile(lengths_of(references, tokenizer), 0.99) + 0.5,
        "do_sample": False,
    }


@wrong(4, "generate() does not take")
def a_misspelt_name(references, tokenizer):
    return {
        "max_new_tokens": max(lengths_of(references, tokenizer)),
        "do_sample": False,
        "beams": 4,
    }


@wrong(4, "ZeroDivisionError")  # in the middle of the search
def no_beams(references, tokenizer):
    return {
        "max_new_tokens": max(lengths_of(references, tokenizer)),
        "do_sample": False,
        "num_beams": 0,
    }


@wrong(4, "the ranks have different settings")
def another_on_each_rank(references, tokenizer):
    return {
        "max_new_tokens": max(lengths_of(references, tokenizer)) + int(os.environ["RANK"]),
        "do_sample": False,
    }


@wrong(4, "are cut off before their end")
def forced_to_go_on(references, tokenizer):
    longest = max(lengths_of(references, tokenizer))
    return {"min_new_tokens": int(1.5 * longest), "max_new_tokens": 2 * longest, "do_sample": False}


@wrong(4, "with as many tokens as the model wants it is")
def hurried_to_the_end(references, tokenizer):
    longest = max(lengths_of(references, tokenizer))
    return {
        "max_new_tokens": longest * 5 // 4,
        "do_sample": False,
        "exponential_decay_length_penalty": (5, 1.5),
    }
