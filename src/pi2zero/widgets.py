"""Explorers: pictures of the models with sliders. They need a kernel, no network; without a kernel their first picture stands."""

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


class Explorer(widgets.VBox):
    """Controls, a picture, and `sentence`, which says what the picture shows. A class has `draw()`, which returns a Figure."""

    def __init__(self, controls, width):
        # In a narrow window the picture becomes smaller as a whole; the controls keep the numbers beside them.
        shrinks = {"width": width, "min_width": "0", "object_fit": "contain"}
        self.picture, self.text = widgets.Image(format="png", layout=shrinks), widgets.HTML()
        super().__init__(
            [
                widgets.HBox([widgets.VBox(controls, layout={"flex": "none"}), self.picture]),
                self.text,
            ]
        )
        for control in controls:
            control.observe(self._show, names="value")
        self._show()

    def _show(self, _change=None):
        buffer = io.BytesIO()
        self.draw().savefig(buffer, format="png")
        self.picture.value = buffer.getvalue()
        # The sentence speaks for the picture. (An Image has no alternative text; with a tooltip JupyterLab fails to show it.)
        self.text.value = f"<b>{self.sentence}</b>{self.more()}"

    def more(self) -> str:
        """What stands below the sentence, as HTML."""
        return ""

    def _repr_mimebundle_(self, **options):
        """A page without a kernel, such as GitHub's, shows the picture as it was at first, or the sentence."""
        shown = super()._repr_mimebundle_(**options)
        picture = base64.b64encode(self.picture.value).decode()
        return shown | {"text/plain": self.sentence, "image/png": picture}


class ScalingExplorer(Explorer):
    """Sliders for data-parallel training; a picture of efficiency over ranks, and one sentence with the figure.

    compute: s of computing a step. The sliders are attributes: ranks, size (MiB of gradients), bandwidth (GB/s), latency
    (microseconds) and overlap (%); `sentence` is the text, `efficiency` its figure, 0..1, from costs.scaling_efficiency.
    """

    def __init__(self, compute=0.2, ranks=64, size=98.0, bandwidth=10.0, latency=5.0, overlap=0):
        if not compute > 0:
            raise ValueError(f"compute: seconds above 0; got {compute!r}.")
        self.compute = compute
        wide = {
            "style": {"description_width": "11em"},
            "layout": {"width": "30em"},
            "continuous_update": False,
        }
        self.ranks = widgets.SelectionSlider(
            options=[2**k for k in range(12)], value=ranks, description="ranks", **wide
        )
        self.size = widgets.FloatLogSlider(
            size, base=10, min=0, max=4, description="gradients, MiB", **wide
        )
        self.bandwidth = widgets.FloatLogSlider(
            bandwidth, base=10, min=-1, max=3, description="bandwidth, GB/s", **wide
        )
        self.latency = widgets.FloatLogSlider(
            latency, base=10, min=-1, max=4, description="latency, µs", **wide
        )
        self.overlap = widgets.IntSlider(
            overlap, min=0, max=100, step=5, description="overlap, % of computing", **wide
        )
        super().__init__(
            (self.ranks, self.size, self.bandwidth, self.latency, self.overlap), "32em"
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
        lost = costs.step_seconds(self.ranks.value, **self.model) - self.compute
        return (
            f"On {self.ranks.value:,} ranks the efficiency is {self.efficiency:.1%}: "
            f"each step computes for {1e3 * self.compute:.0f} ms and waits {1e3 * lost:.1f} ms for the all-reduce."
        )

    def draw(self):
        """Efficiency over 1 to 2,048 ranks, with the chosen number marked."""
        figure = Figure(figsize=(6, 3.4))  # not pyplot's: it would be shown a second time
        ax, p = figure.subplots(), 2 ** np.arange(12)
        plots.scaling_model(p, {"model": costs.scaling_efficiency(p, **self.model)}, ax=ax)
        ax.plot(
            self.ranks.value, 100 * self.efficiency, "o", color=plots.RANK_COLORS[1], markersize=10
        )
        return figure


class ZeroExplorer(Explorer):
    """Menus and sliders for ZeRO; a picture of the bytes on one device by stage, and sentences that say what fits.

    The controls are attributes: parameters (billions), ranks, stage, precision, optimizer, offload, memory (GB of a device) and
    reserve (% of it kept free for activations and buffers); `sentence` is the text, its figures are from costs.
    """

    def __init__(self, parameters=7.5, ranks=64, stage=1, memory=32):
        wide = {"style": {"description_width": "11em"}, "layout": {"width": "30em"}}
        slide = wide | {"continuous_update": False}
        self.parameters = widgets.FloatLogSlider(
            parameters, base=10, min=-2, max=3, description="parameters, billions", **slide
        )
        self.ranks = widgets.SelectionSlider(
            options=[2**k for k in range(12)], value=ranks, description="ranks", **slide
        )
        self.stage = widgets.ToggleButtons(
            options=range(4), value=stage, description="stage", style={"button_width": "3em"}
        )
        self.precision = widgets.Dropdown(
            options=list(costs.PRECISIONS), description="precision", **wide
        )
        self.optimizer = widgets.Dropdown(
            options=list(costs.OPTIMIZERS), description="optimizer", **wide
        )
        self.offload = widgets.Checkbox(
            False, description="offload the optimizer to the host", **wide
        )
        self.memory = widgets.SelectionSlider(
            options=[4, 8, 16, 24, 32, 40, 80, 141, 192], value=memory, description="GB", **slide
        )
        self.reserve = widgets.IntSlider(
            0, min=0, max=90, step=5, description="kept free, %", **slide
        )
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
        super().__init__(controls, "34em")

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
        return self.memory.value * 1e9 * self.reserve.value / 100

    @property
    def largest(self):
        """Parameters of the largest model that fits at the chosen stage on the chosen ranks."""
        stage = self.stage.value
        return float(
            costs.largest_model(
                self.memory.value * 1e9,
                self.ranks.value,
                stage,
                self.reserved,
                **self.options(stage),
            )
        )

    @property
    def needed(self):
        """The fewest ranks for the chosen model and stage, or None."""
        psi, stage = self.parameters.value * 1e9, self.stage.value
        return costs.ranks_needed(
            psi, self.memory.value * 1e9, stage, self.reserved, **self.options(stage)
        )

    @property
    def sentence(self):
        """The largest model that fits, and how many ranks the chosen one needs."""
        where = f"{self.ranks.value:,} x {self.memory.value} GB at stage {self.stage.value}"
        needs = (
            f"on {self.needed:,} or more"
            if self.needed
            else "on no number of them: what is not divided is too large"
        )
        largest, asked = self.largest / 1e9, self.parameters.value
        return f"{where}: the largest model has {largest:,.2f} billion parameters. {asked:,.3g} billion fit {needs}."

    def draw(self):
        """Bytes on one device by component, a bar for each stage; a line where its memory ends."""
        psi, ranks = self.parameters.value * 1e9, self.ranks.value
        rows = {
            f"stage {stage}": costs.zero_bytes(psi, ranks, stage, **self.options(stage))
            for stage in range(4)
        }
        figure = Figure(figsize=(6.4, 3.2), layout="constrained")
        ax = plots.memory_bars(rows, unit=1e9, ax=figure.subplots())
        ax.axvline(self.memory.value - self.reserved / 1e9, color=plots.INK, linestyle="--")
        ax.get_yticklabels()[self.stage.value].set_weight("bold")
        ax.set_xlabel("GB on one device; dashed: what it has for them")
        return figure


class PlanExplorer(Explorer):
    """Sliders for a GPT and a machine of A100-like devices; a picture of the best layouts' steps, and why the others lose.

    The sliders are attributes: layers, width, sequence, batch, ranks, memory (GB), between (GB/s between nodes of
    eight; in a node ten times as much); `plan` is the costs.Plan, or None where no layout uses
    all ranks; `sentence` the best layout in words.
    """

    def __init__(
        self, layers=48, width=6144, sequence=2048, batch=128, ranks=32, memory=80, between=20.0
    ):
        wide = {
            "style": {"description_width": "11em"},
            "layout": {"width": "30em"},
            "continuous_update": False,
        }

        def choice(name, options, value):
            return widgets.SelectionSlider(options=options, value=value, description=name, **wide)

        self.layers = choice("layers", [12, 24, 36, 48, 64, 80, 96, 128], layers)
        self.width = choice(
            "width (heads of 128)", [1024, 2048, 4096, 6144, 8192, 12_288, 16_384], width
        )
        self.sequence = choice("tokens a sequence", [2**k for k in range(9, 17)], sequence)
        self.batch = choice("sequences a step", [2**k for k in range(12)], batch)
        self.ranks = choice("ranks", [2**k for k in range(10)], ranks)
        self.memory = choice("GB of a device", [16, 24, 40, 80, 141, 192], memory)
        self.between = choice("GB/s between nodes", [1.0, 2.5, 5.0, 10.0, 20.0, 50.0], between)
        sliders = (
            self.layers,
            self.width,
            self.sequence,
            self.batch,
            self.ranks,
            self.memory,
            self.between,
        )
        super().__init__(sliders, "44em")

    @property
    def sentence(self):
        """The best layout, its seconds a step and its GB on a device; or why there is none."""
        if self.plan is None:
            return "No layout uses all ranks: take more sequences, or fewer ranks."
        if not self.plan.fitting:
            return f"Nothing fits: at least {self.plan.rows[0].held / 1e9:,.0f} GB a device would be needed."
        best = self.plan.rows[0]
        return f"The best of {len(self.plan.rows):,}: {best.layout.name}, {best.seconds:,.3g} s a step, {best.held / 1e9:,.0f} GB."

    def draw(self):
        """Makes the plan, and draws the steps of its six best layouts by part."""
        width, ranks, between = self.width.value, self.ranks.value, 1e9 * self.between.value
        gpt = costs.transformer(self.layers.value, width, width // 128, 51_200, self.sequence.value)
        machine = costs.Machine(
            ranks, min(8, ranks), 1e9 * self.memory.value, 190e12, 10 * between, between
        )
        try:
            self.plan = costs.plan(gpt, machine, self.batch.value)
        except ValueError:
            self.plan = None
        rows = {row.layout.name: row.parts for row in self.plan.best(6)} if self.plan else {}
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        plots.plan_steps(rows or {"nothing fits": {"compute": 0.0}}, ax=figure.subplots())
        return figure

    def more(self):
        why = self.plan.others() if self.plan else {}
        return "<br>" + "<br>".join(f"{name}: {words}" for name, words in why.items())


class LayoutExplorer(Explorer):
    """Menus for the five dimensions of Hy-Fi; a picture of who has which part and of what each stage holds, and one sentence.

    The network: convolutions as in a ResNet-10 v2, mixed precision, on square images. The menus are attributes: side (pixels),
    data, stages (layers), micro (micro-batches of one image for each copy: a pipeline from 2 on), strips (space), directions
    (1 or 2: GEMS) and memory (GB of a device, eight a node); `layout` is the costs.Layout, None where it cannot run.
    """

    NETWORK = (
        (64, 7, 2),
        (64, 3, 1),
        (64, 3, 1),
        (128, 3, 2),
        (128, 3, 1),
        (256, 3, 2),
        (256, 3, 1),
        (512, 3, 2),
        (512, 3, 1),
    )

    def __init__(self, side=8192, data=2, stages=2, micro=4, strips=2, directions=1, memory=32):
        wide = {"style": {"description_width": "13em"}, "layout": {"width": "30em"}}

        def choice(name, options, value):
            return widgets.ToggleButtons(
                options=options,
                value=value,
                description=name,
                **wide | {"style": {"button_width": "3.3em"}},
            )

        self.side = widgets.SelectionSlider(
            options=[2**k for k in range(9, 16)], value=side, description="pixels a side", **wide
        )
        self.memory = widgets.SelectionSlider(
            options=[16, 32, 80, 141], value=memory, description="GB of a device", **wide
        )
        self.data, self.stages = (
            choice("data", [1, 2, 4, 8], data),
            choice("layers", [1, 2, 4, 8], stages),
        )
        self.micro, self.strips = (
            choice("micro-batches", [1, 2, 4, 8], micro),
            choice("space", [1, 2, 4, 8], strips),
        )
        self.directions = choice("directions", [1, 2], directions)
        menus = (
            self.side,
            self.memory,
            self.data,
            self.stages,
            self.micro,
            self.strips,
            self.directions,
        )
        super().__init__(menus, "48em")

    @property
    def layout(self):
        """The costs.Layout of the chosen menus; None where two directions meet an odd number."""
        two = self.directions.value == 2
        if two and (self.stages.value % 2 or self.micro.value % 2):
            return None
        ways = {"data": self.data.value, "pipeline": self.stages.value, "space": self.strips.value}
        return costs.Layout(**ways, schedule="gems" if two else "1f1b")

    @property
    def sentence(self):
        """What the fullest rank holds, in GB, whether that fits, and what a step's time is made of."""
        if self.layout is None:
            return "Two directions need an even number of stages, and a micro-batch for each direction."
        held, room = max(sum(stage.values()) for stage in self.held), 0.9 * self.memory.value * 1e9
        fits = "fits" if held <= room else "does not fit"
        total = sum(self.parts.values())
        most = ", ".join(
            f"{name} {self.parts[name] / total:.0%}"
            for name in sorted(self.parts, key=self.parts.get)[:-4:-1]
        )
        return f"{self.layout.name}: {held / 1e9:.3g} GB on the fullest rank, it {fits}. A step: {1e3 * total:,.0f} ms ({most})."

    def draw(self):
        """Two pictures: who has which part of the model, and what each stage holds beside its limit, in GB."""
        figure = Figure(figsize=(10, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=[3, 2])
        if self.layout is not None:
            side, ranks, batch = (
                self.side.value,
                self.layout.ranks,
                self.data.value * self.micro.value,
            )
            net = costs.convolutions([3, side, side], self.NETWORK, 2)
            machine = costs.Machine(
                ranks, min(8, ranks), 1e9 * self.memory.value, 50e12, 100e9, 12.5e9
            )
            self.held = costs.held_by_stages(net, self.layout, batch)
            self.parts, _ = costs.seconds(net, self.layout, machine, batch)
            plots.layout_grid(self.layout, machine.per_node, ax=left)
            rows = {
                f"row {k}": stage | {"in flight": stage["buffers"]}
                for k, stage in enumerate(self.held)
            }
            plots.memory_bars(rows, unit=1e9, ax=right)
            right.axvline(0.9 * self.memory.value, color=plots.INK, linestyle="--")
            right.set(
                xlim=(0, max(self.memory.value, right.get_xlim()[1])),
                xlabel="GB on one rank; dashed: its limit",
            )
        return figure
