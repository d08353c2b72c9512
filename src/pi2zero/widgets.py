"""Explorers: pictures of the models with sliders. Without a kernel, the first picture is shown."""

import base64
import io

from pi2zero.requirements import require_package

require_package("ipywidgets", "plots")
require_package("matplotlib", "plots")

import ipywidgets as widgets
import numpy as np
from matplotlib.figure import Figure

from pi2zero import costs, plots

__all__ = ["LayoutExplorer", "PlanExplorer", "ScalingExplorer", "ZeroExplorer"]

MiB = 2**20
GB = 1e9
POWERS_OF_2 = [2**k for k in range(12)]


class Explorer(widgets.VBox):
    """Controls, a picture, and `sentence`, which says what the picture shows.

    A subclass calls `show_controls` at its end and has `draw()`, which returns a Figure.
    """

    def show_controls(self, width, *controls):
        """Lay the controls out beside the picture, which has this width, and draw it."""
        # In a narrow window the picture shrinks as a whole; the numbers of the controls stay.
        shrinks = {"width": width, "min_width": "0", "object_fit": "contain"}
        self.picture, self.text = widgets.Image(format="png", layout=shrinks), widgets.HTML()
        column = widgets.VBox(controls, layout={"flex": "none"})
        self.children = [widgets.HBox([column, self.picture]), self.text]
        for control in controls:
            control.observe(self._update, names="value")
        self._update()

    def _update(self, _change=None):
        buffer = io.BytesIO()
        self.draw().savefig(buffer, format="png")
        self.picture.value = buffer.getvalue()
        # widgets.Image has no alternative text, so the sentence describes the picture.
        self.text.value = f"<b>{self.sentence}</b>{self.more()}"

    def more(self) -> str:
        """HTML below the sentence."""
        return ""

    def _repr_mimebundle_(self, **options):
        """A page without a kernel, such as GitHub's, shows the first picture, or the sentence."""
        bundle = super()._repr_mimebundle_(**options)
        picture = base64.b64encode(self.picture.value).decode()
        return bundle | {"text/plain": self.sentence, "image/png": picture}


def _look(width="11em"):
    return {"style": {"description_width": width}, "layout": {"width": "30em"}}


def _choice(name, options, value, **look):
    look = {**_look(), "continuous_update": False, **look}
    return widgets.SelectionSlider(options=options, value=value, description=name, **look)


def _log_slider(name, value, low, high):
    """A slider from 10^low to 10^high."""
    look = {**_look(), "continuous_update": False}
    return widgets.FloatLogSlider(value, base=10, min=low, max=high, description=name, **look)


def _percent_slider(name, value, most):
    look = {**_look(), "continuous_update": False}
    return widgets.IntSlider(value, min=0, max=most, step=5, description=name, **look)


def _buttons(name, options, value, width):
    style = {"button_width": width}
    return widgets.ToggleButtons(options=options, value=value, description=name, style=style)


class ScalingExplorer(Explorer):
    """Sliders for data-parallel training; a picture of efficiency over ranks.

    compute: s of computing per step. The sliders are attributes: ranks, size (MiB of gradients),
    bandwidth (GB/s), latency (microseconds) and overlap (%). `efficiency` is 0..1.
    """

    def __init__(self, compute=0.2, ranks=64, size=98.0, bandwidth=10.0, latency=5.0, overlap=0):
        if not compute > 0:
            raise ValueError(f"compute: seconds above 0; got {compute!r}.")
        super().__init__()
        self.compute = compute
        self.ranks = _choice("ranks", POWERS_OF_2, ranks)
        self.size = _log_slider("gradients, MiB", size, 0, 4)
        self.bandwidth = _log_slider("bandwidth, GB/s", bandwidth, -1, 3)
        self.latency = _log_slider("latency, µs", latency, -1, 4)
        self.overlap = _percent_slider("overlap, % of computing", overlap, 100)
        self.show_controls(
            "32em", self.ranks, self.size, self.bandwidth, self.latency, self.overlap
        )

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
        """At the chosen number of ranks, 0..1."""
        return float(costs.scaling_efficiency(self.ranks.value, **self.model))

    @property
    def sentence(self):
        """The efficiency, and how long a step computes and waits, in ms."""
        waiting = costs.step_seconds(self.ranks.value, **self.model) - self.compute
        return (
            f"On {self.ranks.value:,} ranks the efficiency is {self.efficiency:.1%}: each step "
            f"computes for {1e3 * self.compute:.0f} ms and waits {1e3 * waiting:.1f} ms for the "
            "all-reduce."
        )

    def draw(self):
        """Efficiency over 1 to 2,048 ranks, with the chosen number marked."""
        figure = Figure(figsize=(6, 3.4))  # pyplot would show the picture a second time
        ax, ranks = figure.subplots(), np.array(POWERS_OF_2)
        plots.scaling_model(ranks, {"model": costs.scaling_efficiency(ranks, **self.model)}, ax=ax)
        mark = {"color": plots.RANK_COLORS[1], "markersize": 10}
        ax.plot(self.ranks.value, 100 * self.efficiency, "o", **mark)
        return figure


class ZeroExplorer(Explorer):
    """Controls for ZeRO; a picture of the bytes on one device by stage.

    The controls are attributes: parameters (billions), ranks, stage, precision, optimizer, offload,
    memory (GB of a device) and reserve (% of it kept free for activations and buffers).
    """

    def __init__(self, parameters=7.5, ranks=64, stage=1, memory=32):
        super().__init__()
        self.parameters = _log_slider("parameters, billions", parameters, -2, 3)
        self.ranks = _choice("ranks", POWERS_OF_2, ranks)
        self.stage = _buttons("stage", range(4), stage, "3em")
        self.precision, self.optimizer = (
            widgets.Dropdown(options=list(options), description=name, **_look())
            for name, options in (("precision", costs.PRECISIONS), ("optimizer", costs.OPTIMIZERS))
        )
        label = "offload the optimizer to the host"
        self.offload = widgets.Checkbox(False, description=label, **_look())
        self.memory = _choice("GB", [4, 8, 16, 24, 32, 40, 80, 141, 192], memory)
        self.reserve = _percent_slider("kept free, %", 0, 90)
        self.show_controls(
            "34em",
            *(self.parameters, self.ranks, self.stage, self.precision),
            *(self.optimizer, self.offload, self.memory, self.reserve),
        )

    def options(self, stage):
        """The options of costs.zero_bytes. At stage 0 nothing is offloaded."""
        return {
            "precision": self.precision.value,
            "optimizer": self.optimizer.value,
            "offload": self.offload.value and stage > 0,
        }

    @property
    def reserved(self):
        """Bytes of the device that are kept free."""
        return self.memory.value * GB * self.reserve.value / 100

    @property
    def largest(self):
        """Parameters of the largest model that fits at the chosen stage on the chosen ranks."""
        stage, ranks, memory = self.stage.value, self.ranks.value, self.memory.value * GB
        return float(
            costs.largest_model(memory, ranks, stage, self.reserved, **self.options(stage))
        )

    @property
    def needed(self):
        """The fewest ranks for the chosen model and stage, or None."""
        psi, stage, memory = self.parameters.value * 1e9, self.stage.value, self.memory.value * GB
        return costs.ranks_needed(psi, memory, stage, self.reserved, **self.options(stage))

    @property
    def sentence(self):
        """The largest model that fits, and how many ranks the chosen one needs."""
        needs = f"on {self.needed:,} ranks or more" if self.needed else "on no number of ranks: "
        needs += "" if self.needed else "what the stage does not partition is too large"
        return (
            f"{self.ranks.value:,} x {self.memory.value} GB at stage {self.stage.value}: the "
            f"largest model has {self.largest / 1e9:,.2f} billion parameters. "
            f"{self.parameters.value:,.3g} billion fit {needs}."
        )

    def draw(self):
        """Bytes on one device by component, a bar for each stage; a line where its memory ends."""
        psi, ranks = self.parameters.value * 1e9, self.ranks.value
        rows = {
            f"stage {stage}": costs.zero_bytes(psi, ranks, stage, **self.options(stage))
            for stage in range(4)
        }
        figure = Figure(figsize=(6.4, 3.2), layout="constrained")
        ax = plots.memory_bars(rows, unit=GB, ax=figure.subplots())
        ax.axvline(self.memory.value - self.reserved / GB, color=plots.INK, linestyle="--")
        ax.get_yticklabels()[self.stage.value].set_weight("bold")
        ax.set_xlabel("GB on one device; dashed: its memory without the reserve")
        return figure


class PlanExplorer(Explorer):
    """Sliders for a GPT and a machine of A100-like devices; a picture of the best layouts' steps.

    The sliders are attributes: layers, hidden_size, sequence_length, batch, ranks, memory (GB) and
    inter_node (GB/s between nodes of eight; inside a node it is ten times as much). `plan` is the
    costs.Plan, or None where no layout uses all ranks.
    """

    def __init__(
        self,
        layers=48,
        hidden_size=6144,
        sequence_length=2048,
        batch=128,
        ranks=32,
        memory=80,
        inter_node=20.0,
    ):
        super().__init__()
        sizes = [1024, 2048, 4096, 6144, 8192, 12_288, 16_384]
        self.layers = _choice("layers", [12, 24, 36, 48, 64, 80, 96, 128], layers)
        self.hidden_size = _choice("hidden size (heads of 128)", sizes, hidden_size)
        lengths = [2**k for k in range(9, 17)]
        self.sequence_length = _choice("tokens per sequence", lengths, sequence_length)
        self.batch = _choice("sequences per step", POWERS_OF_2, batch)
        self.ranks = _choice("ranks", POWERS_OF_2[:10], ranks)
        self.memory = _choice("GB of a device", [16, 24, 40, 80, 141, 192], memory)
        speeds = [1.0, 2.5, 5.0, 10.0, 20.0, 50.0]
        self.inter_node = _choice("GB/s between nodes", speeds, inter_node)
        self.show_controls(
            "44em",
            *(self.layers, self.hidden_size, self.sequence_length, self.batch),
            *(self.ranks, self.memory, self.inter_node),
        )

    @property
    def sentence(self):
        """The best layout, its seconds per step and its GB on a device; or why there is none."""
        if self.plan is None:
            return "No layout uses all ranks: take more sequences, or fewer ranks."
        best, count = self.plan.candidates[0], len(self.plan.candidates)
        size = f"{best.total_bytes / GB:,.0f} GB"
        if not self.plan.fitting:
            return f"Nothing fits: a device would need at least {size}."
        return (
            f"The best of {count:,}: {best.layout.name}, {best.step_time:,.3g} s per step, {size}."
        )

    def draw(self):
        """Make the plan, and draw the steps of its six best layouts by part."""
        hidden, ranks, speed = self.hidden_size.value, self.ranks.value, GB * self.inter_node.value
        length = self.sequence_length.value
        gpt = costs.transformer(self.layers.value, hidden, hidden // 128, 51_200, length)
        memory, per_node = GB * self.memory.value, min(8, ranks)
        machine = costs.Machine(ranks, per_node, memory, 190e12, 10 * speed, speed)
        try:
            self.plan = costs.plan(gpt, machine, self.batch.value)
        except ValueError:
            self.plan = None
        best = self.plan.best(6) if self.plan else []
        rows = {each.layout.name: each.parts for each in best}
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        plots.plan_steps(rows or {"nothing fits": {"compute": 0.0}}, ax=figure.subplots())
        return figure

    def more(self):
        """Why the other layouts lose."""
        reasons = self.plan.why_others_lose() if self.plan else {}
        return "<br>" + "<br>".join(f"{name}: {why}" for name, why in reasons.items())


class LayoutExplorer(Explorer):
    """Controls for the five dimensions of Hy-Fi; pictures of each rank's part and of its memory.

    The network: convolutions as in a ResNet-10 v2, mixed precision, on square images. The controls
    are attributes: side (pixels), data (replicas), stages (of the pipeline), micro_batches (of one
    image per replica; a pipeline needs 2 or more), strips (spatial parallelism), directions (1, or
    2: GEMS) and memory (GB of a device, eight on a node). `layout` is the costs.Layout, or None
    where it is not possible.
    """

    NETWORK = (
        *((64, 7, 2), (64, 3, 1), (64, 3, 1), (128, 3, 2), (128, 3, 1)),
        *((256, 3, 2), (256, 3, 1), (512, 3, 2), (512, 3, 1)),
    )

    def __init__(
        self, side=8192, data=2, stages=2, micro_batches=4, strips=2, directions=1, memory=32
    ):
        super().__init__()
        look = {**_look("13em"), "continuous_update": True}
        self.side = _choice("pixels per side", [2**k for k in range(9, 16)], side, **look)
        self.memory = _choice("GB of a device", [16, 32, 80, 141], memory, **look)
        self.data = _buttons("replicas", [1, 2, 4, 8], data, "3.3em")
        self.stages = _buttons("stages", [1, 2, 4, 8], stages, "3.3em")
        self.micro_batches = _buttons("micro-batches", [1, 2, 4, 8], micro_batches, "3.3em")
        self.strips = _buttons("strips", [1, 2, 4, 8], strips, "3.3em")
        self.directions = _buttons("directions", [1, 2], directions, "3.3em")
        self.show_controls(
            "48em",
            *(self.side, self.memory, self.data, self.stages),
            *(self.micro_batches, self.strips, self.directions),
        )

    @property
    def layout(self):
        """The costs.Layout of the controls; None where two directions meet an odd number."""
        two = self.directions.value == 2
        if two and (self.stages.value % 2 or self.micro_batches.value % 2):
            return None
        return costs.Layout(
            data=self.data.value,
            pipeline=self.stages.value,
            spatial=self.strips.value,
            schedule="gems" if two else "1f1b",
        )

    @property
    def sentence(self):
        """GB on the fullest rank, whether that fits, and what a step's time is made of."""
        if self.layout is None:
            return (
                "Two directions need an even number of stages, and a micro-batch for each "
                "direction."
            )
        fullest, usable = max(sum(stage.values()) for stage in self.bytes), self.usable_memory
        total = sum(self.parts.values())
        largest = sorted(self.parts, key=self.parts.get)[:-4:-1]
        shares = ", ".join(f"{name} {self.parts[name] / total:.0%}" for name in largest)
        return (
            f"{self.layout.name}: {fullest / GB:.3g} GB on the fullest rank, it "
            f"{'fits' if fullest <= usable else 'does not fit'}. "
            f"A step: {1e3 * total:,.0f} ms ({shares})."
        )

    @property
    def usable_memory(self):
        """Bytes of a device: a tenth is kept free."""
        return 0.9 * self.memory.value * GB

    def draw(self):
        """Two pictures: the part of the model on each rank, and each stage's GB with the limit."""
        figure = Figure(figsize=(10, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=[3, 2])
        if self.layout is None:
            return figure
        side, ranks = self.side.value, self.layout.ranks
        batch = self.data.value * self.micro_batches.value
        net = costs.convolutions([3, side, side], self.NETWORK, 2)
        memory = GB * self.memory.value
        machine = costs.Machine(ranks, min(8, ranks), memory, 50e12, 100e9, 12.5e9)
        self.bytes = costs.bytes_by_pipeline_rank(net, self.layout, batch)
        self.parts, _ = costs.step_time(net, self.layout, machine, batch)
        plots.layout_grid(self.layout, machine.ranks_per_node, ax=left)
        rows = {
            f"row {number}": stage | {"in flight": stage["buffers"]}
            for number, stage in enumerate(self.bytes)
        }
        plots.memory_bars(rows, unit=GB, ax=right)
        right.axvline(self.usable_memory / GB, color=plots.INK, linestyle="--")
        limit = max(self.memory.value, right.get_xlim()[1])
        right.set(xlim=(0, limit), xlabel="GB on one rank; dashed: its limit")
        return figure
