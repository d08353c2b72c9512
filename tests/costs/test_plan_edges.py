"""The planner where one way to divide meets another, and at the borders of what a machine is."""

from dataclasses import replace

import pytest
from test_plan_by_hand import ACTIVATIONS, BATCH, GPT, NET, NODE, H, S

from pi2zero import costs


def parts(model, machine=NODE, **layout):
    return costs.seconds(model, costs.Layout(**layout), machine, BATCH)[0]


def test_stages_of_a_divided_sequence_send_a_part_of_it():
    hops = 2 + 2 * (BATCH // 2 - 1)
    link = NODE.latency, 1 / NODE.inside
    sent = parts(GPT, replace(NODE, per_node=8), data=2, pipeline=2, sequence=2)["pipeline"]
    assert sent == pytest.approx(hops * costs.message_seconds(ACTIVATIONS / 2, *link))


def test_stages_of_strips_send_a_strip_each():
    """Twice as many samples go through a pipeline whose images are halved."""
    bytes_alone = replace(NODE, latency=0, per_node=8)
    whole, strips = (
        parts(NET, bytes_alone, pipeline=2, **ways)["pipeline"]
        for ways in ({"data": 4}, {"data": 2, "space": 2})
    )
    hops = [2 + 2 * (BATCH // data - 1) for data in (4, 2)]
    assert whole > 0 and strips / hops[1] == pytest.approx(whole / hops[0] / 2)


@pytest.mark.parametrize("layout", [{"data": 4}, {"tensor": 2, "data": 2}])
def test_more_devices_than_ranks_make_no_rank_faster(layout):
    own, many = (
        parts(GPT, replace(NODE, ranks=4, devices=devices), **layout)["compute"]
        for devices in (4, 64)
    )
    assert many == own == parts(GPT, replace(NODE, ranks=4), **layout)["compute"]


@pytest.mark.parametrize("split", [True, False])
def test_a_head_keeps_what_backward_needs(split):
    """Inputs of its layer norm and of its matrix, 2 bytes each; mean and deviation of a token; the logits, 4 bytes a word."""
    words = 1024
    head = costs.transformer(
        layers=1, width=H, heads=8, vocabulary=words, sequence=S, split_vocabulary=split
    ).layers[-1]
    logits = 4 * S * words
    assert (head.kept, head.kept_whole) == (
        logits * split,
        logits * (not split) + S * (2 * H * 2 + 2 * 4),
    )


def test_a_machine_has_a_million_ranks_at_most():
    with pytest.raises(ValueError, match="ranks: at most 1,000,000; got 1,000,008"):
        replace(NODE, ranks=1_000_008, per_node=8)


def test_a_machine_cannot_be_changed():
    """Its layouts are kept by it."""
    with pytest.raises(AttributeError):
        NODE.ranks = 4
