"""What the start of a cluster rests on, without a cluster."""

import json
import threading
import time
from types import SimpleNamespace

import pytest

from pi2zero.cluster import engines

pytestmark = pytest.mark.long


def starting(folder, runs=True):
    """As much of a cluster as there is while its controller starts."""
    controller = SimpleNamespace(connection_files={"engine": folder / "engine.json"}, get_output=lambda: "no memory")
    return SimpleNamespace(
        folder=folder,
        address=folder / "controller.json",
        ipp=SimpleNamespace(controller=controller),
        controller_runs=lambda: runs,
    )


def test_engines_never_see_half_an_address(tmp_path):
    cluster, text = starting(tmp_path), json.dumps({"key": "a" * 1000})
    publishing = threading.Thread(target=engines.Engines._publish, args=(cluster,))
    (tmp_path / "engine.json").write_text(text[:500])
    publishing.start()
    deadline = time.monotonic() + 0.3
    while time.monotonic() < deadline:
        assert not cluster.address.exists()
    (tmp_path / "engine.json").write_text(text)
    publishing.join(5)
    assert json.loads(cluster.address.read_text()) == {"key": "a" * 1000}
    assert cluster.address.stat().st_mode & 0o777 == 0o600


def test_a_controller_that_ends_says_why(tmp_path):
    with pytest.raises(engines.ClusterError, match=r"controller did not start.*\nno memory"):
        engines.Engines._publish(starting(tmp_path, runs=False))
