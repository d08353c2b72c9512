"""Explorers: pictures of the models with sliders. They need a kernel, no network; a notebook stands without them, too."""

import io

import ipywidgets as widgets
import numpy as np
from matplotlib.figure import Figure

from pi2zero import costs, plots

__all__ = ["PlanExplorer", "ScalingExplorer", "ZeroExplorer"]

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


class ZeroExplorer(widgets.VBox):
    """Menus and sliders for ZeRO; a picture of the bytes on one device by stage, and sentences that say what fits.

    The controls are attributes: parameters (billions), ranks, stage, precision, optimizer, offload, memory (GB of a device) and
    reserve (% of it kept free for activations and buffers); `sentence` is the text, its figures are from costs.
    """

    def __init__(self, parameters=7.5, ranks=64, stage=1, memory=32):
        wide = {"style": {"description_width": "11em"}, "layout": {"width": "30em"}}
        slide = wide | {"continuous_update": False}
        self.parameters = widgets.FloatLogSlider(parameters, base=10, min=-2, max=3, description="parameters, billions", **slide)
        self.ranks = widgets.SelectionSlider(options=[2**k for k in range(12)], value=ranks, description="ranks", **slide)
        self.stage = widgets.ToggleButtons(options=range(4), value=stage, description="stage", style={"button_width": "3em"})
        self.precision = widgets.Dropdown(options=list(costs.PRECISIONS), description="precision", **wide)
        self.optimizer = widgets.Dropdown(options=list(costs.OPTIMIZERS), description="optimizer", **wide)
        self.offload = widgets.Checkbox(False, description="offload the optimizer to the host", **wide)
        self.memory = widgets.SelectionSlider(
            options=[4, 8, 16, 24, 32, 40, 80, 141, 192], value=memory, description="GB", **slide
        )
        self.reserve = widgets.IntSlider(0, min=0, max=90, step=5, description="kept free, %", **slide)
        self.picture, self.text = widgets.Image(format="png", layout={"width": "34em"}), widgets.HTML()
        controls = (
            self.parameters,
            self.ranks,
            self.stage,
            self.precision,
            self.optimizer,
            self.offload,
            self.memory,
            self.reserve,
        )
        super().__init__([widgets.HBox([widgets.VBox(controls), self.picture]), self.text])
        for control in controls:
            control.observe(self._draw, names="value")
        self._draw()

    def options(self, stage):
        """The options of costs.zero_bytes. At stage 0 nothing is offloaded."""
        return {
            "precision": self.precision.value,
            "optimizer": self.optimizer.value,
            "offload": self.offload.value and stage > 0,
        }

    @property
    def reserved(self):
        return self.memory.value * 1e9 * self.reserve.value / 100

    @property
    def largest(self):
        """Parameters of the largest model that fits at the chosen stage on the chosen ranks."""
        stage = self.stage.value
        return float(costs.largest_model(self.memory.value * 1e9, self.ranks.value, stage, self.reserved, **self.options(stage)))

    @property
    def needed(self):
        """The fewest ranks for the chosen model and stage, or None."""
        psi, stage = self.parameters.value * 1e9, self.stage.value
        return costs.ranks_needed(psi, self.memory.value * 1e9, stage, self.reserved, **self.options(stage))

    @property
    def sentence(self):
        where = f"{self.ranks.value:,} x {self.memory.value} GB at stage {self.stage.value}"
        needs = f"on {self.needed:,} or more" if self.needed else "on no number of them: what is not divided is too large"
        largest, asked = self.largest / 1e9, self.parameters.value
        return f"{where}: the largest model has {largest:,.2f} billion parameters. {asked:,.3g} billion fit {needs}."

    def _draw(self, _change=None):
        psi, ranks = self.parameters.value * 1e9, self.ranks.value
        rows = {f"stage {stage}": costs.zero_bytes(psi, ranks, stage, **self.options(stage)) for stage in range(4)}
        figure = Figure(figsize=(6.4, 3.2), layout="constrained")
        ax = plots.memory_bars(rows, unit=1e9, ax=figure.subplots())
        ax.axvline(self.memory.value - self.reserved / 1e9, color=plots.INK, linestyle="--")
        ax.get_yticklabels()[self.stage.value].set_weight("bold")
        ax.set_xlabel("GB on one device; dashed: what it has for them")
        self.picture.value = _png(figure)
        self.text.value = f"<b>{self.sentence}</b>"


class PlanExplorer(widgets.VBox):
    """Sliders for a GPT and a machine of A100-like devices; a picture of the best layouts' steps, and why the others lose.

    The sliders are attributes: layers, width, sequence, batch, ranks, memory (GB), between (GB/s between nodes of
    eight; in a node ten times as much); `plan` is the costs.Plan, or None where no layout uses
    all ranks; `sentence` the best layout in words.
    """

    def __init__(self, layers=48, width=6144, sequence=2048, batch=128, ranks=32, memory=80, between=20.0):
        wide = {"style": {"description_width": "11em"}, "layout": {"width": "30em"}, "continuous_update": False}

        def choice(name, options, value):
            return widgets.SelectionSlider(options=options, value=value, description=name, **wide)

        self.layers = choice("layers", [12, 24, 36, 48, 64, 80, 96, 128], layers)
        self.width = choice("width (heads of 128)", [1024, 2048, 4096, 6144, 8192, 12_288, 16_384], width)
        self.sequence = choice("tokens a sequence", [2**k for k in range(9, 17)], sequence)
        self.batch = choice("sequences a step", [2**k for k in range(12)], batch)
        self.ranks = choice("ranks", [2**k for k in range(10)], ranks)
        self.memory = choice("GB of a device", [16, 24, 40, 80, 141, 192], memory)
        self.between = choice("GB/s between nodes", [1.0, 2.5, 5.0, 10.0, 20.0, 50.0], between)
        self.picture, self.text = widgets.Image(format="png", layout={"width": "44em"}), widgets.HTML()
        sliders = (self.layers, self.width, self.sequence, self.batch, self.ranks, self.memory, self.between)
        super().__init__([widgets.HBox([widgets.VBox(sliders), self.picture]), self.text])
        for slider in sliders:
            slider.observe(self._draw, names="value")
        self._draw()

    @property
    def sentence(self):
        if self.plan is None:
            return "No layout uses all ranks: take more sequences, or fewer ranks."
        if not self.plan.fitting:
            return f"Nothing fits: at least {self.plan.rows[0].held / 1e9:,.0f} GB a device would be needed."
        best = self.plan.rows[0]
        return (
            f"The best of {len(self.plan.rows):,}: {best.layout.name}, {best.seconds:,.3g} s a step, {best.held / 1e9:,.0f} GB."
        )

    def _draw(self, _change=None):
        width, ranks, between = self.width.value, self.ranks.value, 1e9 * self.between.value
        gpt = costs.transformer(self.layers.value, width, width // 128, 51_200, self.sequence.value)
        machine = costs.Machine(ranks, min(8, ranks), 1e9 * self.memory.value, 190e12, 10 * between, between)
        try:
            self.plan = costs.plan(gpt, machine, self.batch.value)
        except ValueError:
            self.plan = None
        rows = {row.layout.name: row.parts for row in self.plan.best(6)} if self.plan else {}
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        plots.plan_steps(rows or {"nothing fits": {"compute": 0.0}}, ax=figure.subplots())
        self.picture.value = _png(figure)
        why = self.plan.others() if self.plan else {}
        self.text.value = f"<b>{self.sentence}</b><br>" + "<br>".join(f"{name}: {words}" for name, words in why.items())


def _png(figure):
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
