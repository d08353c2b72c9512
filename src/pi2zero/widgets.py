"""Explorers: pictures of the models with sliders. They need a kernel, no network; a notebook stands without them, too."""

import io

import ipywidgets as widgets
import numpy as np
from matplotlib.figure import Figure

from pi2zero import costs, plots

__all__ = ["ScalingExplorer"]

MiB = 2**20


class ScalingExplorer(widgets.VBox):
    """Sliders for data-parallel training; a picture of efficiency over ranks, and one sentence with the figure.

    compute: s of computing a step. The sliders are attributes: ranks, size (MiB of gradients), bandwidth (GB/s), latency
    (microseconds) and overlap (%); `sentence` is the text, `efficiency` its figure, 0..1, from costs.scaling_efficiency.
    """

    def __init__(self, compute=0.2, ranks=64, size=98.0, bandwidth=10.0, latency=5.0, overlap=0):
        if not compute > 0:
            raise ValueError(f"compute: seconds above 0; got {compute!r}.")
        self.compute = compute
        wide = {"style": {"description_width": "11em"}, "layout": {"width": "30em"}, "continuous_update": False}
        self.ranks = widgets.SelectionSlider(options=[2**k for k in range(12)], value=ranks, description="ranks", **wide)
        self.size = widgets.FloatLogSlider(size, base=10, min=0, max=4, description="gradients, MiB", **wide)
        self.bandwidth = widgets.FloatLogSlider(bandwidth, base=10, min=-1, max=3, description="bandwidth, GB/s", **wide)
        self.latency = widgets.FloatLogSlider(latency, base=10, min=-1, max=4, description="latency, µs", **wide)
        self.overlap = widgets.IntSlider(overlap, min=0, max=100, step=5, description="overlap, % of computing", **wide)
        self.picture, self.text = widgets.Image(format="png", layout={"width": "32em"}), widgets.HTML()
        sliders = (self.ranks, self.size, self.bandwidth, self.latency, self.overlap)
        super().__init__([widgets.HBox([widgets.VBox(sliders), self.picture]), self.text])
        for slider in sliders:
            slider.observe(self._draw, names="value")
        self._draw()

    @property
    def model(self):
        """The arguments of costs.scaling_efficiency, all but ranks."""
        return {
            "compute": self.compute,
            "nbytes": self.size.value * MiB,
            "alpha": self.latency.value * 1e-6,
            "beta": 1e-9 / self.bandwidth.value,
            "overlap": self.overlap.value / 100,
        }

    @property
    def efficiency(self):
        return float(costs.scaling_efficiency(self.ranks.value, **self.model))

    @property
    def sentence(self):
        lost = costs.step_seconds(self.ranks.value, **self.model) - self.compute
        return (
            f"On {self.ranks.value:,} ranks the efficiency is {self.efficiency:.1%}: "
            f"each step computes for {1e3 * self.compute:.0f} ms and waits {1e3 * lost:.1f} ms for the all-reduce."
        )

    def _draw(self, _change=None):
        figure = Figure(figsize=(6, 3.4))  # not pyplot's: it would be shown a second time
        ax, p = figure.subplots(), 2 ** np.arange(12)
        plots.scaling_model(p, {"model": costs.scaling_efficiency(p, **self.model)}, ax=ax)
        ax.plot(self.ranks.value, 100 * self.efficiency, "o", color=plots.RANK_COLORS[1], markersize=10)
        self.picture.value = _png(figure)
        self.text.value = f"<b>{self.sentence}</b>"


def _png(figure):
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
