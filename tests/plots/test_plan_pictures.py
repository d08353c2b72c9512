"""The planner's explorers, and the picture of a layout: what is drawn and said is what was chosen."""

import matplotlib
import pytest

matplotlib.use("Agg")

from pi2zero import costs, plots
from pi2zero.widgets import LayoutExplorer, PlanExplorer


def test_the_explorer_plans():
    explorer = PlanExplorer(layers=12, width=1024, ranks=8, batch=8)
    assert (
        explorer.plan.rows[0].layout.name in explorer.sentence and "ZeRO-3" in explorer.text.value
    )
    before = explorer.picture.value
    explorer.memory.value, explorer.layers.value, explorer.width.value = 16, 128, 16_384
    assert "Nothing fits: at least" in explorer.sentence and explorer.picture.value != before


def test_the_layout_explorer_has_five_dimensions():
    explorer = LayoutExplorer(side=4096, micro=1)
    seen = {explorer.sentence}
    changes = {
        explorer.data: 4,
        explorer.stages: 4,
        explorer.micro: 8,
        explorer.strips: 4,
        explorer.directions: 2,
    }
    for menu, value in changes.items():
        before = explorer.picture.value
        menu.value = value
        seen.add(explorer.sentence)
        assert explorer.picture.value != before
    assert (
        len(seen) == 6
        and "data 4, pipeline 4 (gems), space 4" in explorer.sentence
        and "it fits" in explorer.sentence
    )
    strips = max(sum(stage.values()) for stage in explorer.held)
    explorer.strips.value = 1
    assert max(sum(stage.values()) for stage in explorer.held) > 3 * strips, (
        "a strip holds its share"
    )
    explorer.side.value = 2**15
    assert "it does not fit" in explorer.sentence
    explorer.stages.value = 1
    assert explorer.layout is None and "even number of stages" in explorer.text.value


@pytest.mark.usefixtures("close_pictures")
@pytest.mark.parametrize("two_ways", [False, True])
def test_each_rank_lies_once_in_the_grid_and_neighbours_in_space_on_one_node(two_ways):
    layout = costs.Layout(data=2, pipeline=4, space=2, schedule="gems" if two_ways else "1f1b")
    ax = plots.layout_grid(layout, per_node=8)
    texts = [text.get_text().split("\n") for text in ax.texts]
    assert sorted(int(text[0]) for text in texts) == list(range(16))
    assert len({patch.get_facecolor() for patch in ax.patches}) == 2, "a colour a node"
    boxes = {int(text.get_text().split()[0].rstrip(",")): text.get_position() for text in ax.texts}
    assert all(boxes[rank + 1][0] == boxes[rank][0] + 1 for rank in range(0, 16, 2)), (
        "strips stand side by side"
    )
    assert all(len(text) == 1 + two_ways for text in texts)
