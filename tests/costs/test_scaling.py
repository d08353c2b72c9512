"""The model of scaling against hand-worked figures, and the published figures."""

import numpy as np
import pytest

from pi2zero import costs

MODEL = {"compute": 0.1, "nbytes": 100e6, "alpha": 1e-6, "beta": 1e-9}


def test_step_on_one_rank_is_computing():
    assert costs.step_seconds(1, **MODEL) == 0.1
    assert costs.scaling_efficiency(1, **MODEL, scatter=0.01) == 1


def test_step_by_hand():
    # two ranks: 2 messages of 50 MB: 2e-6 + 0.1 s of ring, none, half, or all of it hidden
    assert costs.step_seconds(2, **MODEL) == pytest.approx(0.200002)
    assert costs.step_seconds(2, **MODEL, overlap=0.5) == pytest.approx(0.150002)
    assert costs.step_seconds(2, **(MODEL | {"nbytes": 50e6}), overlap=0.67) == pytest.approx(0.1)
    assert costs.throughput(2, 32, **MODEL) == pytest.approx(64 / 0.200002)


def test_slowest_rank_matches_simulation():
    p, scatter = 64, 0.01
    slowest = np.random.default_rng(0).normal(0.1, scatter, (20_000, p)).max(axis=1).mean()
    model = costs.step_seconds(p, 0.1, 0, 0, 0, scatter=scatter)
    assert slowest < model < slowest * 1.05  # an upper bound, and near


def test_allowed_beta_inverts_the_model():
    assert costs.allowed_beta(2, 0.1, 100e6, 0, 0.5) == pytest.approx(1e-9), (
        "two ranks: as long as it computes for 100 MB"
    )
    with pytest.raises(ValueError, match="2 or more"):
        costs.allowed_beta(1, 0.1, 100e6, 0, 0.5)
    beta = costs.allowed_beta(512, 0.2, 98e6, 5e-6, 0.9, overlap=0.3)
    assert costs.scaling_efficiency(512, 0.2, 98e6, 5e-6, beta, overlap=0.3) == pytest.approx(0.9)
    with pytest.raises(ValueError, match="is not possible"):
        costs.allowed_beta(2048, 0.001, 1e6, 1e-3, 0.9)


def test_measured_efficiency():
    assert costs.rate_efficiency(2, 632.8, 334.0) == pytest.approx(0.947, abs=5e-4)
    assert costs.rate_efficiency(16, 125, 93, base_ranks=4) == pytest.approx(0.336, abs=5e-4)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"ranks": 0}, "ranks"),
        ({"compute": 0}, "compute"),
        ({"overlap": 2}, "overlap"),
        ({"scatter": -1}, "scatter"),
    ],
)
def test_bad_arguments(bad, message):
    with pytest.raises(ValueError, match=message):
        costs.step_seconds(**({"ranks": 2} | MODEL | bad))


def published(name):
    return {point.ranks: point for point in costs.PUBLISHED if point.name == name}


def test_published_data_is_sane_and_sourced():
    assert {2, 512, 1536, 2048} <= {point.ranks for point in costs.PUBLISHED}
    for point in costs.PUBLISHED:
        assert all([point.source, point.hardware, point.exchange, point.measured])
        assert point.network in (None, *costs.PARAMETERS)
        share = costs.published_efficiency(point)
        assert share is None or 0 < share < 1.01
    minutes = [record.minutes for record in costs.IMAGENET_RECORDS]
    assert minutes == sorted(minutes, reverse=True)
    assert all("arXiv:" in record.source for record in costs.IMAGENET_RECORDS)
    assert all(74.9 <= record.accuracy <= 76.3 for record in costs.IMAGENET_RECORDS)


def test_published_efficiencies_are_those_that_their_sources_state():
    # Google's blog of 2017: 7.91 times on 8 GPUs; Bugliarello: 92.07 %, and 99.56 % for Google's.
    assert costs.published_efficiency(published("ResNet-50, DGX-1")[8]) == pytest.approx(
        7.91 / 8, abs=1e-3
    )
    assert costs.published_efficiency(published("Inception V3, DGX-1")[8]) == pytest.approx(
        0.9956, abs=1e-4
    )
    assert costs.published_efficiency(
        published("Inception V3, Piz Daint, servers")[8]
    ) == pytest.approx(0.9207, abs=1e-4)
    assert costs.published_efficiency(published("VGG-16, Horovod")[512]) == 0.68
    for name, ranks in (
        ("ResNet-50, Summit", 1536),
        ("ResNet-50, Frontera", 8192),
    ):  # a rate, and no base
        assert costs.published_efficiency(published(name)[ranks]) is None


@pytest.mark.parametrize(
    ("point", "base", "message"),
    [
        (
            ("ResNet-50, DGX-1", 8),
            ("Inception V3, DGX-1", 1),
            "network .ResNet-50 and Inception V3.",
        ),
        (
            ("ResNet-50, Summit", 1536),
            ("ResNet-50, V100 pair", 1),
            "framework .*hardware .*measured",
        ),
        (("ResNet-50, Puhti, DDP", 4), ("ResNet-50, V100 pair", 1), "batch .32 and 64."),
        (
            ("Inception V3, Piz Daint, replicated", 4),
            ("Inception V3, Piz Daint, servers", 1),
            "exchange",
        ),
        (("VGG-16, Horovod", 512), ("VGG-16, Horovod", 512), "no rate"),
    ],
)
def test_unlike_figures_are_not_compared(point, base, message):
    with pytest.raises(ValueError, match=message):
        costs.compare_rates(published(point[0])[point[1]], published(base[0])[base[1]])


def test_the_ring_is_given_only_what_was_published_of_one_study():
    puhti = costs.ring_inputs(published("ResNet-50, Puhti, DDP")[8])
    assert puhti == {"compute": pytest.approx(32 / 325.95), "nbytes": pytest.approx(102.4e6)}
    pair = published("ResNet-50, V100 pair")[2]
    predicted = costs.scaling_efficiency(2, **costs.ring_inputs(pair), alpha=5e-6, beta=1 / 10e9)
    assert predicted == pytest.approx(0.949, abs=5e-4)
    assert costs.published_efficiency(pair) == pytest.approx(0.947, abs=5e-4)
    for name, ranks, message in (
        ("Inception V3, Piz Daint, servers", 8, "parameter servers"),
        ("VGG-16, Horovod", 512, "does not state the batch"),
        ("Hy-Fi", 2048, "hybrid"),
    ):
        with pytest.raises(ValueError, match=message):
            costs.ring_inputs(published(name)[ranks])
