"""Short stories of local news, written by a generator, in the form of CNN/DailyMail.

They ship with the kit, so that a summarizer can be trained without a network. Each split has its
own sentences (train.toml, validation.toml, test.toml) and its own names: a model that only recalls
training stories writes wrong summaries.
"""

import random
import re
import tomllib
from functools import cache
from itertools import product
from pathlib import Path

SPLITS = ("train", "validation", "test")
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()  # noqa: SIM905
MONTHS = [
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
]
HERE = Path(__file__).parent


def story(split: str, index: int, seed: int = 0, topics: tuple[str, ...] = ()) -> dict[str, str]:
    """Story number `index` (0, 1, ...) of a split: {"id", "article", "highlights"}.

    Always the same for the same arguments, on every machine, and independent of the other stories:
    a rank can write those of its own shard only. Each highlight is on its own line.
    topics: only these (see train.toml); none: all. Raises ValueError.
    """
    if split not in SPLITS:
        raise ValueError(f"There is no split {split!r}. The splits are {', '.join(SPLITS)}.")
    if index < 0:
        raise ValueError(f"A story's index is 0 or more, not {index}.")
    draw = random.Random(f"{seed}/{split}/{index}")
    sentences = _sentences(split)
    if unknown := set(topics) - set(sentences["topic"]):
        raise ValueError(
            f"There is no topic {min(unknown)!r}. The topics are {', '.join(sentences['topic'])}."
        )
    topic = sentences["topic"][draw.choice(sorted(topics or sentences["topic"]))]
    scene, facts = sentences["scene"], _facts(draw, split, topic)
    asides = draw.sample(scene["aside"], draw.choice((1, 1, 2)))
    body = [
        _fill(draw.choice(topic["count"]), draw, facts),
        _fill(draw.choice(topic["plan"]), draw, facts),
    ]
    body += [_fill(aside, draw, facts | _noise(draw, split, facts)) for aside in asides]
    draw.shuffle(body)
    opening = [_fill(draw.choice(topic["event"]), draw, facts)]
    if draw.random() < 0.6:
        opening.insert(
            draw.choice((0, 0, 1)),
            _fill(draw.choice(scene["sentences"]), draw, facts | _noise(draw, split, facts)),
        )
    lines = [_fill(draw.choice(topic["highlights"])[part], draw, facts) for part in range(3)]
    return {
        "id": f"{split}-{seed}-{index}",
        "article": " ".join(opening + body),
        "highlights": "\n".join(lines),
    }


def stories(
    split: str, count: int, seed: int = 0, topics: tuple[str, ...] = ()
) -> list[dict[str, str]]:
    """The first `count` stories of a split."""
    return [story(split, index, seed, topics) for index in range(count)]


def _facts(draw, split, topic):
    """What a story tells: {name in the templates: word}."""
    names, role = _names(split), draw.choice(topic["role"])
    return {
        "town": draw.choice(names["town"]),
        "month": draw.choice(MONTHS),
        "day": draw.choice(DAYS),
        "person": f"{draw.choice(names['given'])} {draw.choice(names['family'])}",
        "number": draw.randint(*topic["number"]),
        "role": role,
        "Role": role.capitalize(),
        "place": draw.choice(topic["place"]),
    }


def _noise(draw, split, facts):
    """What a sentence mentions and a summary must leave out; never the words of the facts."""
    names, person = _names(split), facts["person"].split()

    def other(pool, taken):
        return draw.choice([word for word in pool if word not in taken])

    return {
        "other_town": other(names["town"], [facts["town"]]),
        "other_month": other(MONTHS, [facts["month"]]),
        "other_person": f"{other(names['given'], person)} {other(names['family'], person)}",
        "age": other(range(20, 90), [facts["number"]]),
    }


def _fill(template, draw, facts):
    """A sentence from a template: one of each [a|b], the facts, "an" before a vowel, a capital."""
    chosen = re.sub(r"\[([^]]*)\]", lambda found: draw.choice(found[1].split("|")), template)
    text = re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", chosen.format(**facts))
    return re.sub(r"^(\W*)(\w)", lambda found: found[1] + found[2].upper(), text)


@cache
def _sentences(split):
    return tomllib.loads((HERE / f"{split}.toml").read_text(encoding="utf-8"))


@cache
def _names(split):
    """{"given", "family", "town"}: this split's names: 80 % for training, 10 % for each other."""
    raw = tomllib.loads((HERE / "names.toml").read_text(encoding="utf-8"))
    shares = {}
    for kind, pieces in raw.items():
        pool = sorted({"".join(pair) for pair in product(*pieces)})
        random.Random(kind).shuffle(pool)
        tenth = len(pool) // 10
        cuts = {
            "train": pool[2 * tenth :],
            "validation": pool[:tenth],
            "test": pool[tenth : 2 * tenth],
        }
        shares[kind] = cuts[split]
    return shares
