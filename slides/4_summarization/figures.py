"""Figures and numbers of the deck "Summarization"."""

import ast
import html
import re
import textwrap
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
from covers import highlights as cover  # noqa: F401
from diagrams import (
    ACCENT,
    GREY,
    QUIET,
    WARM,
    block,
    box,
    canvas,
    label,
    rank_box,
    row_label,
    stairs,
)
from diagrams_summaries import checkpoint, pieces, same_batch, t5, untaught  # noqa: F401, drawn by their names in deck.md
from extract import SlideError, cell_output, printed, tagged_cell

from pi2zero import costs, plots
from pi2zero_course.summarization.data import SPLITS, news
from pi2zero_course.summarization.scores import facts as names_and_numbers
from pi2zero_course.summarization.scores import sentences

NOTEBOOK_10 = "notebooks/10_dailymail.ipynb"
UNREAD = "#F2F2F2"
NAMES = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeLsum": "ROUGE-Lsum"}
NAMES["facts"] = "names and\nnumbers"
COLORS = dict(zip(NAMES.values(), (QUIET, GREY, "#c9d0db", WARM), strict=True))

# Parameters of T5, as C. Raffel and others give them, JMLR 21, 2020 (arXiv:1910.10683).
T5 = {"small": 60e6, "base": 220e6, "large": 770e6, "3B": 3e9, "11B": 11e9}
# Words of CNN/DailyMail's stories on average: A. See and others, arXiv:1704.04368. A word has about
# 1.3 pieces.
ARTICLE_WORDS, HIGHLIGHT_WORDS, PIECES_A_WORD = 780, 56, 1.3
READ = 512  # pieces of an article that T5 is given
# The worked example: all numbers on the slide are computed from these.
REFERENCE, SUMMARY = "Fire in Selmouth damages a bakery.", "Fire damages a school in Selmouth."
TWO_LINES = ["Fire in Selmouth damages a bakery.", "It leaves 20 people injured."]
TOKENS, LOSSES = (4, 12), (1.0, 3.0)  # of two ranks


def rouge(reference, summary):
    """F-measures in percent of the four kinds of ROUGE."""
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(["rouge1", "rouge2", "rougeL", "rougeLsum"], use_stemmer=True)
    scores = scorer.score(reference, summary)
    return {kind: 100 * score.fmeasure for kind, score in scores.items()}


def printed_scores(tag):
    """{label: scores} of the lines `label {'rouge1': ...}` that a cell of the notebook printed."""
    lines = printed(NOTEBOOK_10, tag, r"(?m)^(.*?) *(\{'rouge1'[^}]*\})")
    return {name: ast.literal_eval(scores) for name, scores in lines}


def judged():
    """{summarizer: its scores}, baselines and models, as notebook 10 printed them."""
    return printed_scores("results")


def baselines():
    """The four of them that learn nothing."""
    return dict(list(judged().items())[:4])


def facts():
    """The numbers in the deck's text, computed here."""
    example = rouge(REFERENCE, SUMMARY)
    swapped = rouge("\n".join(TWO_LINES), "\n".join(TWO_LINES[::-1]))
    scores, moved = baselines(), printed_scores("options")
    *_, before, ours = judged().values()
    every, ranks = sum(TOKENS), len(TOKENS)
    scaled = [loss * tokens * ranks / every for loss, tokens in zip(LOSSES, TOKENS, strict=True)]
    return (
        {
            "story": story(),
            "how_many": len(names_and_numbers(news.stories("test", 2)[1]["highlights"])),
            "rouge1": f"{example['rouge1']:.0f}",
            "rouge2": f"{example['rouge2']:.0f}",
            "rougeL": f"{example['rougeL']:.0f}",
            "swapped": " ".join(TWO_LINES[::-1]),
            "swapped_L": f"{swapped['rougeL']:.0f}",
            "swapped_Lsum": f"{swapped['rougeLsum']:.0f}",
            "lead_rouge1": mean(scores["lead-3"], "rouge1"),
            "nearest_rouge1": mean(scores["nearest"], "rouge1"),
            "nearest_facts": mean(scores["nearest"], "facts"),
            "oracle_facts": mean(scores["oracle"], "facts"),
            "lead_facts": mean(scores["lead-3"], "facts"),
            "before_rouge1": mean(before, "rouge1"),
            "before_facts": mean(before, "facts"),
            "ours_rouge1": mean(ours, "rouge1"),
            "ours_facts": mean(ours, "facts"),
            "lost": f"{moved['60 tokens']['rouge1'] - moved['20 tokens']['rouge1']:.0f}",
            "mean_of_means": f"{sum(LOSSES) / ranks:g}",
            "mean": f"{sum(scaled) / ranks:g}",
            "scaled": [f"{one:g}" for one in scaled],
            "own": [f"{loss:g}" for loss in LOSSES],
            "tokens": TOKENS,
            "every": every,
            "sizing_rows": "\n".join(sizing_row(name) for name in T5),
            "t5_11b": f"{costs.zero_total(T5['11B'], 1, 0) / 1e9:.0f}",
        }
        | little_training()
        | {"wrong_name": wrong_name()}
    )


def mean(scores, kind):
    return f"{scores[kind][1]:.0f}"


def bold(text, words):
    """The text with these words bold, in Markdown."""
    return re.sub(r"[\w'-]+", lambda word: f"**{word[0]}**" if word[0] in words else word[0], text)


def story():
    """The story that the notebook prints, as the row of a table; names and numbers of the
    highlights are bold.
    """
    one = news.stories("test", 2)[1]
    article, highlights = (
        bold(one[part], names_and_numbers(one["highlights"])) for part in ("article", "highlights")
    )
    article = re.sub(r"(?<=[.?!]) ", "<br>", article)
    return f"| {article} | {highlights.replace(chr(10), '<br>')} |"


def little_training():
    """Results of the notebook's training on documentation, and the share of invented names."""
    text = cell_output(NOTEBOOK_10, "little")
    first, ours = ast.literal_eval(re.search(r"\{.*?\}", text)[0]).values()
    asked, written = (
        " ".join(re.search(rf"{word}: *(.*)", text)[1].split()) for word in ("asked", "written")
    )
    wrong = re.search(r"(\d+)%", cell_output(NOTEBOOK_10, "ten-check"))
    return {
        "docs_first": f"{first:.0f}",
        "docs_ours": f"{ours:.0f}",
        "asked": cut(asked),
        "written": cut(written),
        "wrong": wrong[1],
    }


def wrong_name():
    """A summary with a wrong name, of those that the notebook shows, as rows of a table.

    It is of the deck's own story, if possible. Bold: names and numbers that the story lacks.
    """
    page = "".join(tagged_cell(NOTEBOOK_10, "ten")["outputs"][0]["data"]["text/html"])

    def plain(cell):
        return html.unescape(re.sub(r"<(?!br)[^>]+>", "", cell)).replace("<br>", "\n")

    page = page.replace(" …</summary>", " ").removesuffix("</table>")  # stories unfolded
    lines = [re.split(r"<td[^>]*>", line)[1:] for line in page.split("<tr>")]
    rows = [[plain(cell) for cell in cells] for cells in lines if cells]  # without the head
    for article, *texts in [rows[1], *rows]:
        wrong = [names_and_numbers(text) - set(re.findall(r"[\w'-]+", article)) for text in texts]
        if wrong[-1]:
            texts = [bold(cut(text, 200), words) for text, words in zip(texts, wrong, strict=True)]
            names = ("the&nbsp;story", "asked&nbsp;for", "before", "after")
            cells = zip(names, (article, *texts), strict=True)
            head = ["| | bold: a name that the story does not have |", "|:---|:---|"]
            return "\n".join([*head, *(f"| {name} | {text} |" for name, text in cells)])
    raise SlideError(
        f"{NOTEBOOK_10}: no summary of the cell 'ten' has a wrong name; the slide that shows "
        f"one can go."
    )


def cut(text, most=90, longest=24):
    """A model's text for a table: no Markdown in it, and not longer than fits."""
    words = re.sub(r"[|*`_<>\[\]\\]", " ", text).split()
    words = [word if len(word) <= longest else word[:longest] + "…" for word in words]
    return textwrap.shorten(" ".join(words), most, placeholder=" …")


def sizing_row(name):
    """States of a T5, and the first stage that needs 3/4 of the memory of eight devices or less."""
    psi = T5[name]
    sizes = [costs.zero_total(psi, 8, stage) for stage in range(4)]
    cells = []
    for memory in (24e9, 80e9):
        fit = [stage for stage in range(4) if sizes[stage] <= 0.75 * memory]
        cells.append(f"stage {fit[0]}, {sizes[fit[0]] / 1e9:.1f} GB" if fit else "no")
    states = costs.zero_total(psi, 1, 0) / 1e9
    return f"| T5-{name} | {states:,.1f} GB | {' | '.join(cells)} |"


def way():
    figure = stairs(3)
    for text in figure.axes[0].texts:
        if text.get_text() == "you are here":
            text.set_y(206)  # below its box: above, the canvas ends
    return figure


# --- the task, the baselines, ROUGE


def splits():
    """The generated news: splits share only topics, neither sentences nor names."""
    figure, axes = canvas(1150, 178)
    for index, split in enumerate(SPLITS):
        one = news.stories(split, 1)[0]
        x = 20 + 380 * index
        block(axes, x, 4, 350, 170, UNREAD, edgecolor=QUIET, linewidth=3)
        label(axes, x + 175, 148, split, weight="bold", size=19)
        words = names_and_numbers(one["highlights"])
        name = min((w for w in words if w[0].isupper() and len(w) > 5), default="")
        for row, text in enumerate(textwrap.wrap(sentences(one["article"])[0], 29)):
            label(axes, x + 175, 114 - 25 * row, text, size=16)
        label(axes, x + 175, 24, f"a name: {name}", size=16, color=QUIET)
    return figure


def by_hand():
    """The worked example: common words are dark, common pairs underlined, and lines join the
    longest common subsequence.
    """
    figure, axes = canvas(1150, 260)
    texts = [text.rstrip(".").split() for text in (REFERENCE, SUMMARY)]
    lower = [[word.lower() for word in text] for text in texts]
    centres = []
    for row, (name, words) in enumerate(zip(("reference", "summary"), texts, strict=True)):
        y = 172 - 132 * row
        row_label(axes, 160, y + 29, name, size=19)
        centres.append([])
        for k, word in enumerate(words):
            x, shared = 180 + 160 * k, word.lower() in lower[1 - row]
            box(axes, x, y, 148, 58, word, *((QUIET, "white") if shared else ()), size=19)
            centres[row].append((x + 74, y))
            if tuple(lower[row][k : k + 2]) in pairwise(lower[1 - row]):
                edge = 242 if row == 0 else 26
                axes.plot([x, x + 308], [edge, edge], color=WARM, linewidth=5)
    for i, j in subsequence(*lower):
        axes.plot([centres[0][i][0], centres[1][j][0]], [172, 98], color=ACCENT, linewidth=4)
    return figure


def subsequence(a, b):
    """Places (i, j) of one longest common subsequence."""
    if not a or not b:
        return []
    best = max(subsequence(a[:-1], b), subsequence(a, b[:-1]), key=len)
    if a[-1] == b[-1]:
        both = [*subsequence(a[:-1], b[:-1]), (len(a) - 1, len(b) - 1)]
        best = max(both, best, key=len)
    return best


def readable(axes):
    """Each score in its colour, with numbers large enough for a slide."""
    for bars in axes.containers:
        for bar in getattr(bars, "patches", None) or []:
            bar.set_color(COLORS[bars.get_label()])
    for text in axes.texts:
        text.set_fontsize(15)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return axes.figure


def baseline_bars():
    return readable(plots.scores(baselines(), NAMES, figsize=(11.8, 4.4)))


def result_bars():
    names = {name: NAMES[name] for name in ("rouge1", "facts")}
    return readable(plots.scores(judged(), names, figsize=(11.8, 4.4)))


def length_bars():
    """ROUGE-1 and facts of one model, by the length that generate may write."""
    scores = printed_scores("options")
    names = sorted(scores, key=lambda name: ("beams" in name, int(re.match(r"\d+", name)[0])))
    figure, axes = plt.subplots(figsize=(6.6, 4.6))
    for k, (kind, words) in enumerate({"rouge1": "ROUGE-1", "facts": "names and numbers"}.items()):
        y, values = np.arange(len(names)) + 0.38 * k, [scores[name][kind] for name in names]
        bars = axes.barh(y, values, 0.36, color=(QUIET, WARM)[k], label=words)
        axes.bar_label(bars, fmt="%.0f", padding=5)
    axes.set_yticks(np.arange(len(names)) + 0.19, names)
    axes.set(xlim=(0, 105), xlabel="percent")
    axes.invert_yaxis()
    figure.legend(loc="outside upper center", ncols=2)
    return figure


# --- the model and its run


def cut_away():
    """The mean article of CNN/DailyMail and its highlights in tokens; T5 does not read the grey."""
    figure, axes = canvas(1150, 230)
    left, scale = 170, 0.83  # px; px a piece
    for y, name, words in ((140, "article", ARTICLE_WORDS), (40, "highlights", HIGHLIGHT_WORDS)):
        whole, read = float(f"{words * PIECES_A_WORD:.2g}"), min(words * PIECES_A_WORD, READ)
        box(axes, left, y, whole * scale, 70, color=UNREAD, edge=QUIET if whole > READ else "none")
        box(axes, left, y, read * scale, 70, color=ACCENT)
        row_label(axes, left - 20, y + 35, name, size=19)
        x = left + whole * scale + 15
        label(axes, x, y + 35, f"about {whole:,.0f}", color=QUIET, ha="left")
    label(axes, left + READ * scale / 2, 175, f"the first {READ}: read", color="white", size=19)
    middle = (READ + ARTICLE_WORDS * PIECES_A_WORD) / 2
    label(axes, left + middle * scale, 175, "never seen", size=19)
    return figure


def means():
    """The tokens of two ranks, each with its loss."""
    figure, axes = canvas(1150, 190)
    for rank, (tokens, loss) in enumerate(zip(TOKENS, LOSSES, strict=True)):
        y = 108 - 90 * rank
        row_label(axes, 120, y + 32, f"rank {rank}", size=19)
        for k in range(tokens):
            rank_box(axes, 140 + 62 * k, y, 56, 64, f"{loss:g}", rank, size=19)
        label(axes, 152 + 62 * tokens, y + 32, f"mean {loss:g}", ha="left", size=18)
    return figure
