"""ZeRO on paper: the published figures, the edges, and clear errors."""

import itertools

import pytest

from pi2zero import costs


@pytest.mark.parametrize(("stage", "published"), [(0, 120), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_the_papers_case(stage, published):
    """7.5 billion parameters on 64 GPUs, in GB (figure 1)."""
    assert costs.zero_total(7.5e9, 64, stage) / 1e9 == pytest.approx(published, abs=0.05)


def test_components_and_options():
    names = ("parameters", "gradients", "master", "moments")
    for ranks, stage, sizes in ((1, 0, (200, 200, 400, 800)), (4, 3, (50, 50, 100, 200))):
        assert costs.zero_bytes(100, ranks, stage) == dict(zip(names, sizes, strict=True))
    assert costs.zero_total(100, 4, 3, precision="fp32") == 400, "16 bytes per parameter, too"
    assert costs.zero_total(100, 4, 0, optimizer="sgd") == 800
    assert [costs.zero_total(100, 1, stage, offload=True) for stage in (1, 2)] == [400, 200]
    for stage, ranks in itertools.product(range(3), (2, 8)):
        assert costs.zero_total(100, ranks, stage + 1) < costs.zero_total(100, ranks, stage)


def test_bytes_sent():
    for k, traffic in ((1, [2, 2, 2, 3]), (4, [2, 2, 5, 12])):  # 2, 2, k + 1, 3k
        sent = [costs.zero_bytes_sent(1e6, 1e9, stage, accumulation=k) for stage in range(4)]
        assert sent == pytest.approx([2e6 * each for each in traffic])
    assert costs.zero_bytes_sent(1e6, 4, 3, bytes_per_value=4) == 3 * 1e6 * 0.75 * 4
    assert costs.zero_bytes_sent(1e6, 1, 3) == 0


def test_what_fits_where():
    assert costs.largest_model(32e9, 64, 3) == pytest.approx(128e9)
    assert costs.largest_model(32e9, 1, 0, reserve=16e9) == pytest.approx(1e9)
    for stage in range(4):
        largest = costs.largest_model(32e9, 8, stage)
        assert costs.ranks_needed(largest * 0.999, 32e9, stage) <= 8
        assert costs.ranks_needed(largest * 1.001, 32e9, stage) != 8
    assert costs.ranks_needed(20e9, 32e9, 2) is None, "the parameters alone take 40 GB"
    assert costs.ranks_needed(1e9, 32e9, 0) == 1 and costs.ranks_needed(3e9, 32e9, 0) is None
    assert costs.ranks_needed(20e9, 32e9, 3) == 10


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
        (lambda: costs.ranks_needed(20e9, -1, 3), "^memory: "),
        (lambda: costs.zero_bytes_sent(1e9, 4, 1, bytes_per_value=0), "bytes_per_value"),
    ],
)
def test_bad_input_says_what_is_expected(call, words):
    with pytest.raises(ValueError, match=words):
        call()
