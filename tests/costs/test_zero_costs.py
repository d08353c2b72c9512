"""ZeRO on paper: the published figures, the edges, and clear errors."""

import itertools

import pytest

from pi2zero import costs


@pytest.mark.parametrize(("stage", "published"), [(0, 120), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_the_papers_case(stage, published):
    """7.5 billion parameters on 64 GPUs, in GB (figure 1)."""
    assert costs.zero_total(7.5e9, 64, stage) / 1e9 == pytest.approx(published, abs=0.05)


def test_small_t5_on_two_ranks():
    """60.5 million parameters: 968, 605, 545, 484 MB."""
    found = [costs.zero_total(60.5e6, 2, stage) / 1e6 for stage in range(4)]
    assert found == pytest.approx([968, 605, 545, 484], abs=1)


def test_components_and_options():
    assert costs.zero_bytes(100, 1, 0) == {
        "parameters": 200,
        "gradients": 200,
        "master": 400,
        "moments": 800,
    }
    assert costs.zero_bytes(100, 4, 3) == {
        "parameters": 50,
        "gradients": 50,
        "master": 100,
        "moments": 200,
    }
    assert costs.zero_total(100, 4, 3, precision="fp32") == 400, "16 bytes a parameter there, too"
    assert costs.zero_total(100, 4, 0, optimizer="sgd") == 800
    assert [costs.zero_total(100, 1, stage, offload=True) for stage in (1, 2)] == [400, 200]
    for stage, ranks in itertools.product(range(3), (2, 8)):
        assert costs.zero_total(100, ranks, stage + 1) < costs.zero_total(100, ranks, stage)


def test_bytes_sent():
    assert [costs.zero_sent(1e6, 1e9, stage) / 2e6 for stage in range(4)] == pytest.approx(
        [2, 2, 2, 3]
    )
    assert costs.zero_sent(1e6, 4, 3, bytes_each=4) == 3 * 1e6 * 0.75 * 4
    assert costs.zero_sent(1e6, 1, 3) == 0
    accumulated = [costs.zero_sent(1e6, 1e9, stage, accumulation=4) / 2e6 for stage in range(4)]
    assert accumulated == pytest.approx([2, 2, 5, 12])  # 2, 2, k + 1, 3k passes


def test_what_fits_where():
    assert costs.largest_model(32e9, 64, 3) == pytest.approx(128e9)
    assert costs.largest_model(32e9, 1, 0, reserve=16e9) == pytest.approx(1e9)
    for stage in range(4):
        fits = costs.largest_model(32e9, 8, stage)
        assert costs.ranks_needed(fits * 0.999, 32e9, stage) <= 8
        assert costs.ranks_needed(fits * 1.001, 32e9, stage) != 8
    assert costs.ranks_needed(20e9, 32e9, 2) is None, (
        "its parameters alone take 40 GB on every rank"
    )
    assert costs.ranks_needed(1e9, 32e9, 0) == 1 and costs.ranks_needed(3e9, 32e9, 0) is None
    assert costs.ranks_needed(20e9, 32e9, 3) == 10
    with pytest.raises(ValueError, match=r"^memory: "):
        costs.ranks_needed(20e9, -1, 3)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: costs.zero_bytes(0, 4, 1), "parameters"),
        (lambda: costs.zero_bytes(1e9, 0, 1), "ranks"),
        (lambda: costs.zero_bytes(1e9, 4, 4), "stage: 0, 1, 2 or 3; got 4"),
        (lambda: costs.zero_bytes(1e9, 4, 1, precision="fp8"), "precision: one of mixed, fp32"),
        (lambda: costs.zero_bytes(1e9, 4, 1, optimizer="lion"), "optimizer: one of adam"),
        (lambda: costs.zero_bytes(1e9, 4, 0, offload=True), "offload: needs a stage"),
        (lambda: costs.largest_model(1e9, 4, 1, reserve=1e9), "reserve"),
        (lambda: costs.zero_sent(1e9, 4, 1, bytes_each=0), "bytes_each"),
    ],
)
def test_bad_input_says_what_is_expected(call, words):
    with pytest.raises(ValueError, match=words):
        call()
