"""Explorers: pictures of the models with sliders, which follow while a slider is moved.

Without a kernel, the picture that was shown when the cell ran is there.
"""

import functools
import math
import time

from pi2zero.requirements import require_package

require_package("ipywidgets", "plots")
require_package("matplotlib", "plots")

import ipywidgets as widgets

from pi2zero import costs
from pi2zero.hosts.limits import nvidia_gpu_memory
from pi2zero.plots import live
from pi2zero.plots.style import COMPONENT_COLORS, STEP_COLORS

__all__ = ["LayoutExplorer", "PlanExplorer", "ScalingExplorer", "ZeroExplorer"]

MiB = 2**20
GB = 1e9
POWERS_OF_2 = [2**k for k in range(12)]
PAUSE = 1.0  # s without a change, after which what is shown becomes the ghost of the next picture
MODELS = {  # billions of parameters
    "GPT-2 1.5B": 1.5,
    "Llama 2 7B": 6.7,
    "Turing NLG 17B": 17.0,
    "Llama 2 70B": 69.0,
    "GPT-3 175B": 175.0,
}
DEVICES = {  # GB
    "T4": 16,
    "RTX 4090": 24,
    "V100": 32,
    "A100, 40 GB": 40,
    "A100 or H100, 80 GB": 80,
    "H200": 141,
}
LABEL = "13em"
LOOK = {"style": {"description_width": LABEL}, "layout": {"width": "29em", "max_width": "100%"}}
OWN = "your own"


class Explorer(widgets.VBox):
    """Controls, a picture, and `sentence`, which says what the picture shows.

    A subclass calls `show_controls` at its end and has `draw(ghost)`, which returns SVG, and
    `ghost()`, what the next picture shows of this one.
    """

    def show_controls(self, *controls):
        """Lay the controls out next to the picture, or above it in a narrow window, and draw it."""
        self.picture, self.text = widgets.HTML(), widgets.HTML()
        self._changed, self._ghost, self._last = 0.0, (), ()
        column = widgets.VBox(controls, layout={"flex": "0 1 auto", "overflow": "hidden"})
        # A basis of 0 pixels less would never wrap; the picture's own width is that of its text.
        result = widgets.VBox([self.picture, self.text], layout={"flex": "1 1 26em"})
        self.children = [widgets.HBox([column, result], layout={"flex_flow": "row wrap"})]
        for control in controls:
            control.observe(self._update, names="value")
        self._update()

    def _update(self, _change=None):
        if time.monotonic() - self._changed > PAUSE:
            self._ghost = self._last
        self._changed = time.monotonic()
        self.picture.value = self.draw(self._ghost)
        self._last = self.ghost()
        self.text.value = f"<b>{self.sentence}</b>{self.more()}"

    def more(self) -> str:
        """HTML below the sentence."""
        return ""

    def _repr_mimebundle_(self, **options):
        """A page without a kernel, such as GitHub's, shows the first picture, or the sentence."""
        bundle = super()._repr_mimebundle_(**options)
        on_white = self.picture.value.replace('style="', 'style="background:white;', 1)
        return bundle | {"text/plain": self.sentence, "image/svg+xml": on_white}


def _choice(name, options, value):
    return widgets.SelectionSlider(options=options, value=value, description=name, **LOOK)


def _log_slider(name, value, low, high):
    """A slider from 10^low to 10^high."""
    # The page moves the value to the next step: by 0.1 %, not by the default's 12 %.
    look = {"step": 0.001, "readout_format": ".3g", **LOOK}
    return widgets.FloatLogSlider(value, base=10, min=low, max=high, description=name, **look)


def _percent_slider(name, value, most):
    return widgets.IntSlider(value, min=0, max=most, step=5, description=name, **LOOK)


def _buttons(name, options, value):
    look = {**LOOK, "style": {"button_width": "2.6em", "description_width": LABEL}}
    buttons = widgets.ToggleButtons(options=options, value=value, description=name, **look)
    buttons.add_class("widget-inline-hbox")  # as a slider has: else its label is above the buttons
    return buttons


def _preset(name, values, control):
    """A list of names that sets a control, and says "your own" when that has another value."""
    preset = widgets.Dropdown(options=[OWN, *values], description=name, **LOOK)

    def is_chosen(label):
        return label in values and math.isclose(values[label], control.value, rel_tol=0.005)

    def show(_change=None):
        if not is_chosen(preset.value):
            preset.value = next(filter(is_chosen, values), OWN)

    def choose(change):
        if change["new"] != OWN and not is_chosen(change["new"]):
            control.value = values[change["new"]]

    control.observe(show, names="value")
    preset.observe(choose, names="value")
    show()
    return preset


@functools.cache
def _devices():
    """The GB of devices by name, with this machine's GPU, if there is one."""
    own = round(nvidia_gpu_memory() / GB)
    return DEVICES | ({"this machine's GPU": own} if own else {})


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
        self.overlap = _percent_slider("overlap, % of compute", overlap, 100)
        self.show_controls(self.ranks, self.size, self.bandwidth, self.latency, self.overlap)

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

    def ghost(self):
        """The curve, in percent."""
        return [100 * float(costs.scaling_efficiency(p, **self.model)) for p in POWERS_OF_2]

    def draw(self, ghost):
        """Efficiency over 1 to 2,048 ranks, with the chosen number marked."""
        mark = self.ranks.value, 100 * self.efficiency
        labels = {"x_label": "ranks", "y_label": "efficiency, %", "title": self.sentence}
        return live.line_svg(POWERS_OF_2, self.ghost(), mark, ghost, **labels)


class ZeroExplorer(Explorer):
    """Controls for ZeRO; a picture of the bytes on one device by stage.

    The controls are attributes: parameters (billions), ranks, stage, precision, optimizer, offload,
    memory (GB of a device) and reserve (% of it kept free for activations and buffers); model and
    device set parameters and memory by name.
    """

    def __init__(self, parameters=7.5, ranks=64, stage=1, memory=32):
        super().__init__()
        self.parameters = _log_slider("parameters, billions", parameters, -2, 3)
        self.ranks = _choice("ranks", POWERS_OF_2, ranks)
        self.stage = _buttons("stage", range(4), stage)
        self.precision, self.optimizer = (
            widgets.Dropdown(options=list(options), description=name, **LOOK)
            for name, options in (("precision", costs.PRECISIONS), ("optimizer", costs.OPTIMIZERS))
        )
        self.offload = _buttons("optimizer's states", {"device": False, "host": True}, False)
        self.offload.style.button_width = "6em"
        devices = _devices()
        memories = sorted({4, 8, 192, memory, *devices.values()})
        self.memory = _choice("memory of a device, GB", memories, memory)
        self.reserve = _percent_slider("of it kept free, %", 0, 90)
        self.model = _preset("model", MODELS, self.parameters)
        self.device = _preset("device", devices, self.memory)
        self.show_controls(
            *(self.model, self.parameters, self.ranks, self.stage, self.precision),
            *(self.optimizer, self.offload, self.device, self.memory, self.reserve),
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
        ranks = f"rank{'s' * (self.needed != 1)}"
        needs = f"on {self.needed:,} {ranks} or more" if self.needed else "on no number of ranks: "
        needs += "" if self.needed else "what the stage does not partition is too large"
        return (
            f"{self.ranks.value:,} x {self.memory.value} GB at stage {self.stage.value}: the "
            f"largest model has {self.largest / 1e9:,.2f} billion parameters. "
            f"{self.parameters.value:,.3g} billion fit {needs}."
        )

    def rows(self):
        """GB on one device by component, for each stage."""
        psi, ranks = self.parameters.value * 1e9, self.ranks.value
        sizes = {n: costs.zero_bytes(psi, ranks, n, **self.options(n)) for n in range(4)}
        return {
            f"stage {number}": {name: size / GB for name, size in parts.items()}
            for number, parts in sizes.items()
        }

    def ghost(self):
        """Each stage's GB on one device."""
        return {label: sum(parts.values()) for label, parts in self.rows().items()}

    def draw(self, ghost):
        """Bytes on one device by component, a bar for each stage; a line where its memory ends."""
        limit = self.memory.value - self.reserved / GB
        # The axis is the device's: a larger model is a longer bar.
        ends = {"limit": limit, "longest": 2.0 * self.memory.value}
        look = {"ghost": ghost, "bold": f"stage {self.stage.value}", "title": self.sentence}
        return live.stacked_bars_svg(self.rows(), COMPONENT_COLORS, " GB", **ends, **look)


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
        self.hidden_size = _choice("hidden size", sizes, hidden_size)
        lengths = [2**k for k in range(9, 17)]
        self.sequence_length = _choice("tokens per sequence", lengths, sequence_length)
        self.batch = _choice("sequences per step", POWERS_OF_2, batch)
        self.ranks = _choice("ranks", POWERS_OF_2[:10], ranks)
        self.memory = _choice("memory of a device, GB", [16, 24, 40, 80, 141, 192], memory)
        speeds = [1.0, 2.5, 5.0, 10.0, 20.0, 50.0]
        self.inter_node = _choice("GB/s between nodes", speeds, inter_node)
        self.show_controls(
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

    def rows(self):
        """The steps of the six best layouts by part, in s."""
        return {each.layout.name: each.parts for each in (self.plan.best(6) if self.plan else [])}

    def ghost(self):
        """Each layout's s per step."""
        return {name: sum(parts.values()) for name, parts in self.rows().items()}

    def draw(self, ghost):
        """Make the plan, and draw the steps of its six best layouts by part."""
        controls = self.layers, self.hidden_size, self.sequence_length, self.batch, self.ranks
        self.plan = _plan(*(each.value for each in (*controls, self.memory, self.inter_node)))
        rows = self.rows() or {"nothing fits": {}}
        look = {"ghost": ghost, "bold": next(iter(rows)), "title": self.sentence}
        return live.stacked_bars_svg(rows, STEP_COLORS, " s", **look)

    def more(self):
        """Why the other layouts lose, in a table that opens."""
        left = "style='text-align:left'"
        reasons = self.plan.why_others_lose() if self.plan else {}
        rows = "".join(
            f"<tr><td {left}>{name}</td><td {left}>{why}</td></tr>"
            for name, why in reasons.items()
            if why != "the best has it"
        )
        return (
            rows and f"<details><summary>Why others lose</summary><table>{rows}</table></details>"
        )


@functools.lru_cache(maxsize=64)
def _plan(layers, hidden_size, sequence_length, batch, ranks, memory, inter_node):
    """The costs.Plan of these settings of a PlanExplorer; None if no layout uses all ranks."""
    gpt = costs.transformer(layers, hidden_size, hidden_size // 128, 51_200, sequence_length)
    speed, per_node = GB * inter_node, min(8, ranks)
    machine = costs.Machine(ranks, per_node, GB * memory, 190e12, 10 * speed, speed)
    try:
        return costs.plan(gpt, machine, batch)
    except ValueError:
        return None


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
        self.side = _choice("pixels per side", [2**k for k in range(9, 16)], side)
        self.memory = _choice("memory of a device, GB", [16, 32, 80, 141], memory)
        self.data = _buttons("replicas", [1, 2, 4, 8], data)
        self.stages = _buttons("stages", [1, 2, 4, 8], stages)
        self.micro_batches = _buttons("micro-batches", [1, 2, 4, 8], micro_batches)
        self.strips = _buttons("strips", [1, 2, 4, 8], strips)
        self.directions = _buttons("directions", [1, 2], directions)
        self.show_controls(
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

    def rows(self):
        """GB on a rank by component, for each row of ranks (a stage, or two)."""
        stages = self.bytes if self.layout else []
        return {
            f"row {number}": {
                name: size / GB for name, size in (stage | {"in flight": stage["buffers"]}).items()
            }
            for number, stage in enumerate(stages)
        }

    def ghost(self):
        """The GB on a rank, for each row."""
        return {
            label: sum(parts.get(name, 0) for name in COMPONENT_COLORS)
            for label, parts in self.rows().items()
        }

    def draw(self, ghost):
        """Two pictures: the part of the model on each rank, and each stage's GB with the limit."""
        if self.layout is None:
            return live.column_svg(title=self.sentence)
        side, ranks = self.side.value, self.layout.ranks
        batch = self.data.value * self.micro_batches.value
        net = costs.convolutions([3, side, side], self.NETWORK, 2)
        machine = costs.Machine(ranks, min(8, ranks), GB * self.memory.value, 50e12, 100e9, 12.5e9)
        self.bytes = costs.bytes_by_pipeline_rank(net, self.layout, batch)
        self.parts, _ = costs.step_time(net, self.layout, machine, batch)
        bars = live.stacked_bars_svg(
            self.rows(), COMPONENT_COLORS, " GB", self.usable_memory / GB, ghost=ghost
        )
        grid = live.grid_svg(self.layout, machine.ranks_per_node)
        return live.column_svg(grid, bars, title=self.sentence)
