"""The explorers: what is drawn and said is what was chosen."""

from types import SimpleNamespace
from xml.etree import ElementTree

import matplotlib
import pytest

matplotlib.use("Agg")

from pi2zero import costs, widgets
from pi2zero.hosts import limits
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
    picture = ElementTree.fromstring(shown["image/svg+xml"])  # noqa: S314  (the kit's own)
    assert picture[0].text == shown["text/plain"] == explorer.sentence, "its alternative text"
    assert "application/vnd.jupyter.widget-view+json" in shown, "JupyterLab shows the controls"
    getattr(explorer, EXPLORERS[kind]).value = 8
    assert explorer.sentence != shown["text/plain"]
    assert explorer.sentence in explorer.text.value
    assert f"<title>{explorer.sentence}</title>" in explorer.picture.value, "both are of one moment"


def test_an_explorer_follows_and_shows_what_was_before(monkeypatch):
    """While a slider moves, the ghost stays what it was when the move began."""
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    explorer = ZeroExplorer(stage=0)
    sliders = [getattr(explorer, name) for name in ("parameters", "ranks", "memory", "reserve")]
    assert all(slider.continuous_update for slider in sliders)
    before = explorer.ghost()
    now[0] += 10
    for ranks in (128, 256):
        explorer.ranks.value = ranks
        assert explorer._ghost == before
        now[0] += 0.1
    now[0] += 10
    at_256 = explorer.ghost()
    explorer.parameters.value = 1.0
    assert explorer._ghost == at_256 and 'stroke-dasharray="4 3"' in explorer.picture.value


def test_models_and_devices_have_names(monkeypatch):
    monkeypatch.setattr(limits.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout="24564"))
    widgets._devices.cache_clear()
    explorer = ZeroExplorer()
    assert (explorer.model.value, explorer.device.value) == ("your own", "V100")
    explorer.model.value, explorer.device.value = "GPT-3 175B", "H200"
    assert (explorer.parameters.value, explorer.memory.value) == (175, 141)
    assert "64 x 141 GB" in explorer.sentence and "175 billion" in explorer.sentence
    explorer.parameters.value = 10**2.243  # the slider's next step
    assert explorer.model.value == "GPT-3 175B" and "175 billion" in explorer.sentence
    explorer.device.value = "this machine's GPU"
    widgets._devices.cache_clear()
    assert explorer.memory.value == 26  # 24,564 MiB
    explorer.parameters.value = 20
    assert explorer.model.value == "your own" and explorer.parameters.value == 20


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
    assert "13 billion fit on 1 rank or more" in explorer.sentence
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
