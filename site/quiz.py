"""A part's quiz as a page.

Each answer unfolds to whether it is right, and why: it needs no script, and works by keyboard.

quiz/NUMBER.toml: `about` names the notebook that measured it; `answers` are [mark, answer, why],
the mark "+" for the right one.
"""

import tomllib
from zlib import crc32

from content import HERE, PARTS, path_of, title_of
from markdown_it import MarkdownIt

MARKDOWN = MarkdownIt("commonmark")
SAYS = {"+": "Right.", "-": "No."}


def questions(number):
    return tomllib.loads((HERE / "quiz" / f"{number}.toml").read_text())["question"]


def page(number):
    """Markdown of the quiz of part `number` (from 1), for the folder quiz/ of the site."""
    asked = questions(number)
    parts = [
        f"# Quiz {number} · {PARTS[number - 1]['title']}",
        f"{len(asked)} questions on what was measured. Click the answer that you would give: you "
        "see whether it is right, and why.",
        f'<p class="quiz-score" role="status" data-questions="{len(asked)}"></p>',
        *(_question(place, question) for place, question in enumerate(asked, start=1)),
    ]
    return "\n\n".join(parts) + "\n"


def _question(place, question):
    path = path_of(question["about"])
    # A fixed order in which the right answer can be anywhere
    mixed = sorted(question["answers"], key=lambda answer: crc32(answer[1].encode()))
    answers = "".join(_answer(place, *answer) for answer in mixed)
    page = path.replace(".ipynb", ".html")
    return (
        f'<section class="question"><h2>{place} · {_inline(question["ask"])}</h2>{answers}'
        f'<p class="about">From <a href="../{page}">{_inline(title_of(path))}</a></p></section>'
    )


def _answer(place, mark, answer, why):
    kind = "right" if mark == "+" else "wrong"
    return (
        f'<details class="answer {kind}" name="question-{place}">'
        f"<summary>{_inline(answer)}</summary>"
        f"<p><strong>{SAYS[mark]}</strong> {_inline(why)}</p></details>"
    )


def _inline(text):
    return MARKDOWN.renderInline(" ".join(text.split()))
