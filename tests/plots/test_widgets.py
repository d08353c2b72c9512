"""The explorers: what is drawn and said is what was chosen."""

import base64

import matplotlib
import pytest

matplotlib.use("Agg")

from pi2zero import costs
from pi2zero.widgets import LayoutExplorer, PlanExplorer, ScalingExplorer, ZeroExplorer

EXPLORERS = {
    ScalingExplorer: "ranks",
    ZeroExplorer: "ranks",
    PlanExplorer: "ranks",
    LayoutExplorer: "data",
}


@pytest.mark.parametrize("kind", EXPLORERS)
def test_an_explorer_where_widgets_cannot_run(kind):
    """GitHub and the site show its picture; its text alternative is the sentence."""
    explorer = kind()
    shown = explorer._repr_mimebundle_()
    assert base64.b64decode(shown["image/png"]) == explorer.picture.value
    assert shown["text/plain"] == explorer.sentence
    assert "application/vnd.jupyter.widget-view+json" in shown, "JupyterLab shows the controls"
    getattr(explorer, EXPLORERS[kind]).value = 8
    assert explorer.sentence in explorer.text.value and explorer.sentence != shown["text/plain"]


def test_the_scaling_explorer_says_what_costs_says():
    explorer = ScalingExplorer()
    picture = explorer.picture.value
    explorer.bandwidth.value = 1.0
    assert explorer.picture.value != picture
    expected = costs.scaling_efficiency(64, 0.2, 98 * 2**20, 5e-6, 1e-9)
    assert explorer.efficiency == pytest.approx(expected)
    assert f"{expected:.1%}" in explorer.text.value
    explorer.ranks.value = 1
    assert "100.0%" in explorer.sentence
    with pytest.raises(ValueError, match="compute"):
        ScalingExplorer(compute=0)


def test_the_zero_explorer_says_what_fits():
    explorer = ZeroExplorer()
    assert explorer.largest == pytest.approx(costs.largest_model(32e9, 64, 1))
    explorer.stage.value = 3
    assert "128.00 billion" in explorer.text.value and "on 4 ranks or more" in explorer.sentence
    explorer.offload.value, explorer.stage.value = True, 2
    explorer.ranks.value, explorer.parameters.value = 1, 13
    assert explorer.largest == pytest.approx(16e9)
    assert "13 billion fit on 1 ranks or more" in explorer.sentence
    explorer.stage.value = 0
    assert "on no number of ranks" in explorer.sentence
    explorer.reserve.value = 50
    assert explorer.largest == pytest.approx(1e9)


def test_the_plan_explorer_plans():
    explorer = PlanExplorer(layers=12, hidden_size=1024, ranks=8, batch=8)
    assert explorer.plan.candidates[0].layout.name in explorer.sentence
    assert "ZeRO-3" in explorer.text.value
    explorer.memory.value, explorer.layers.value, explorer.hidden_size.value = 16, 128, 16_384
    assert "Nothing fits: a device would need at least" in explorer.sentence


def test_the_layout_explorer_has_five_dimensions():
    explorer = LayoutExplorer(side=4096, micro_batches=1)
    sentences = {explorer.sentence}
    for name, value in {
        "data": 4,
        "stages": 4,
        "micro_batches": 8,
        "strips": 4,
        "directions": 2,
    }.items():
        picture = explorer.picture.value
        getattr(explorer, name).value = value
        sentences.add(explorer.sentence)
        assert explorer.picture.value != picture
    assert len(sentences) == 6 and "it fits" in explorer.sentence
    assert "data 4, pipeline 4 (gems), spatial 4" in explorer.sentence
    strips = max(sum(parts.values()) for parts in explorer.bytes)
    explorer.strips.value = 1
    whole = max(sum(parts.values()) for parts in explorer.bytes)
    assert whole > 3 * strips, "a strip takes its share"
    explorer.side.value = 2**15
    assert "it does not fit" in explorer.sentence
    explorer.stages.value = 1
    assert explorer.layout is None and "even number of stages" in explorer.text.value
