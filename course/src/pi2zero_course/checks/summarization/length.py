"""The check of lab 5's fourth task: how long a summary may be."""

from functools import cache

import numpy as np

from pi2zero import ranks
from pi2zero_course.checks.framework.agree import agree, agree_on
from pi2zero_course.checks.framework.answers import CheckError, call_answer
from pi2zero_course.checks.framework.task import lab_task
from pi2zero_course.checks.framework.values import is_int
from pi2zero_course.checks.summarization import stories as lab

JUDGED = 60  # validation stories
CUT = 0.02  # share of summaries that may be cut off
BELOW = 1.0  # points of ROUGE-1
UNLIMITED = 200  # tokens


@lab_task(5, 4)
def settings(function):
    """settings(references, tokenizer) -> generate()'s arguments: long enough, not too long, and no
    chance."""
    me = ranks.join()
    references = [one["highlights"] for one in lab.stories("train", 1000)]
    agree(
        _judge_settings,
        function,
        [f"{text}\n{text}" for text in references],
        "for references twice as long",
    )
    given = agree(_judge_settings, function, references, "for the training highlights")
    agree_on(given, "settings")
    net, free = lab.model(me.device), _unlimited()
    mine = agree(_generate, net, me, given)
    if mine["cut off"] > CUT * JUDGED:
        raise CheckError(
            f"{mine['cut off']} of {JUDGED} summaries are cut off before their end; {CUT:.0%} may "
            "be.\nNames that are new to the tokenizer take more tokens than those of training: "
            "leave a reserve."
        )
    if mine["rouge1"] < free["rouge1"] - BELOW:
        raise CheckError(
            f"ROUGE-1 is {mine['rouge1']:.1f}; with as many tokens as the model wants it is "
            f"{free['rouge1']:.1f}. At most {BELOW:g} point below is right."
        )
    return (
        f"ROUGE-1 {mine['rouge1']:.1f} (without a limit {free['rouge1']:.1f}); {mine['cut off']} "
        f"of {JUDGED} cut off."
    )


@cache  # all ranks measure, or none
def _unlimited():
    """What the model writes with as many tokens as it wants."""
    me = ranks.join()
    return lab.scored(lab.model(me.device), JUDGED, me, max_new_tokens=UNLIMITED, do_sample=False)


def _generate(net, me, given):
    try:
        return lab.scored(net, JUDGED, me, **given)
    except Exception as error:  # whatever generate() trips over; the same on all ranks
        raise CheckError(
            f"generate() does not take {given}: {type(error).__name__}: {error}"
        ) from None


def _judge_settings(function, references, where):
    lengths = [len(numbers) for numbers in lab.tokenizer()(references)["input_ids"]]
    given = call_answer(function, list(references), lab.tokenizer())
    if not isinstance(given, dict):
        raise CheckError(
            f"settings returned {type(given).__name__}; a dict of generate()'s arguments is due."
        )
    if given.get("do_sample", True) is not False:
        raise CheckError(
            "say do_sample=False: if chance chooses the words, two runs give two ROUGEs."
        )
    if given.get("max_new_tokens") is None and given.get("max_length") is None:
        raise CheckError(
            "no length is set, so generate() ends after 20 tokens, in the middle of a sentence: "
            "max_new_tokens."
        )
    limit = given.get("max_new_tokens", (given.get("max_length") or 0) - 1)
    if not is_int(limit):
        raise CheckError(f"max_new_tokens is {limit!r}; a whole number of tokens is due.")
    if limit > 2 * max(lengths):
        raise CheckError(
            f"{where}, {limit:,} tokens are allowed; the longest reference has {max(lengths)}. A "
            "summary that finds no end costs all of them, and every story of its batch waits. At "
            "most twice the longest is right."
        )
    most = np.quantile(lengths, 0.95)
    if limit < most:
        words = max(len(text.split()) for text in references)
        why = "That is the most *words*; generate() counts tokens." * (abs(limit - words) <= 1)
        raise CheckError(
            f"{where}, {limit} tokens are allowed, but one reference in twenty has more than "
            f"{most:.0f}, and the longest "
            f"{max(lengths)}: take the length from the references.\n{why}"
        )
    return given
