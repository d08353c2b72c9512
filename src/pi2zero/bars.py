"""Progress bars for ranks: a cell says on each rank how far it is, and the notebook shows a bar for each."""

from html import escape

from IPython import get_ipython
from IPython.display import display

__all__ = ["Bars"]

WIDTH = 30  # characters of a bar in plain text


class Bars:
    """One display that is drawn anew whenever a rank has published something else.

    A rank publishes with ipyparallel's `publish_data({"progress": 0.3, "step": 30, "loss": 1.2})`: `progress`, 0 to 1, makes
    the bar, everything else stands beside it (numbers with three digits). Without `progress` nothing is drawn.
    """

    def __init__(self):
        self._shown, self._handle = {}, None

    def show(self, published: dict[int, dict]) -> None:
        """published: {rank: what it published last}."""
        published = {rank: data for rank, data in published.items() if "progress" in data}
        if get_ipython() is None or not published or published == self._shown:
            return
        self._shown = published
        picture = {"text/plain": self.text(published), "text/html": self.html(published)}
        if self._handle is None:
            self._handle = display(picture, raw=True, display_id=True)
        else:
            self._handle.update(picture, raw=True)

    @staticmethod
    def text(published: dict[int, dict]) -> str:
        """The bars in plain text."""
        lines = []
        for rank, data in published.items():
            full = round(WIDTH * min(1, data["progress"]))
            lines.append(f"rank {rank} [{'#' * full}{'.' * (WIDTH - full)}] {_beside(data)}")
        return "\n".join(lines)

    @staticmethod
    def html(published: dict[int, dict]) -> str:
        """The bars as HTML, for a notebook."""
        rows = [
            f'<div>rank {rank} <progress value="{data["progress"]:.3f}" aria-label="rank {rank}"></progress> '
            f"{escape(_beside(data))}</div>"
            for rank, data in published.items()
        ]
        return "".join(rows)


def _beside(data):
    """'step 30, loss 1.2, tokens/s 24,000'"""
    names = sorted(data.keys() - {"progress"}, key=lambda name: (name != "step", name.lower()))  # ipyparallel sorts them, too
    return ", ".join(f"{name} {_short(data[name])}" for name in names)


def _short(value):
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
