"""Four ranks on two hosts that ssh reaches: they are one world, and strangers get nothing."""

import re
import socket
import subprocess

import psutil
import pytest
import zmq

from pi2zero.ownership import marked_processes
from tests.several_hosts.conftest import SETUP, START, SUM, SUMS, fresh, on, shown


@pytest.fixture(scope="module")
def shared():
    """A kernel for all tests."""
    yield from fresh()


@pytest.fixture
def four(shared):
    """The shared kernel, with ranks that work."""
    if "cluster" not in shared.__dict__:
        reply = shared.run(START)
        assert reply.ok, reply.text
        up = r"4 ranks are up on node1 \(2\) and node2 \(2\) \(Open MPI [\d.]+\), [\d.]+ s\."
        assert re.search(up, shown(reply)), shown(reply)
        shared.cluster = True
    assert (reply := shared.run(SETUP)).ok, reply.text
    return shared


def test_one_world_over_both_hosts(four):
    assert four.run(SUM).text == SUMS
    assert (
        four.run('print([rank["host"] for rank in cluster.info])').text
        == "['node1', 'node1', 'node2', 'node2']\n"
    )
    # no folder is shared but the home folder: what ranks write into /tmp is on their own host
    four.run("%%px\nopen(f'/tmp/of-rank-{rank}', 'w').close()")
    assert on("node1", "ls /tmp | grep of-rank").split() == ["of-rank-0", "of-rank-1"]
    assert on("node2", "ls /tmp | grep of-rank").split() == ["of-rank-2", "of-rank-3"]
    four.run("%%px\nos.remove(f'/tmp/of-rank-{rank}')")


def test_torch_joins_over_the_network(four):
    cell = """%%px
    import torch, torch.distributed as dist
    from pi2zero import ranks
    me = ranks.join()
    x = torch.full((1000,), float(rank))
    dist.all_reduce(x)
    print(me.local_rank, me.backend, x[0].item(), os.environ["MASTER_ADDR"])"""
    text = four.run(cell.replace("\n    ", "\n")).text
    assert text == "".join(f"[stdout:{rank}] {rank % 2} gloo 6.0 10.77.0.11\n" for rank in range(4))


def test_stacks_come_from_all_hosts_without_a_shared_folder(four):
    """Each rank stands in a line of its own; where they are is in the report of the one that
    raised.
    """
    lines = "\n".join(
        f"if rank == {rank}:\n    comm.recv(source={rank}, tag={rank})" for rank in range(3)
    )
    text = four.run(f"%%px\n{lines}\nif rank == 3:\n    raise KeyError('lr')").text
    assert "Rank 3 raised KeyError" in text
    for rank in range(3):
        assert (
            f"rank {rank}: cell line {2 * rank + 2}:  comm.recv(source={rank}, tag={rank})" in text
        ), text
    assert four.run(SETUP).ok and four.run(SUM).text == SUMS


@pytest.fixture
def stranger():
    """An address on the network of the hosts that is none of theirs."""
    subprocess.run(["ip", "addr", "add", "10.77.0.99/24", "dev", "br0"], check=True)
    yield "10.77.0.99"
    subprocess.run(["ip", "addr", "del", "10.77.0.99/24", "dev", "br0"], check=True)


def test_strangers_get_nothing(four, stranger):
    """Who is on the network, but on none of the ranks' hosts, cannot connect to what ranks and
    daemons there listen on.
    """
    for node, address in (("node1", "10.77.0.11"), ("node2", "10.77.0.12")):
        listening = [line.split() for line in on(node, "ss -Hltnp4").splitlines()]
        ports = [
            int(words[3].rpartition(":")[2])
            for words in listening
            if "python" in words[-1] or "prted" in words[-1]
        ]
        assert len(ports) >= 3, listening
        for port in ports:
            with pytest.raises(OSError):
                socket.create_connection((address, port), 0.5, source_address=(stranger, 0)).close()


def test_the_controller_listens_on_one_address_and_tells_strangers_nothing(four, stranger):
    """Encrypted: who has no key of this start hears nothing of a cell
    (tests/cluster/test_second_user.py: it would, were it not).
    """
    controllers = [
        process
        for process in marked_processes(four.owner)
        if "ipyparallel.controller" in process.cmdline()
    ]
    sockets = [found for process in controllers for found in process.net_connections("tcp")]
    listening = {found.laddr for found in sockets if found.status == psutil.CONN_LISTEN}
    listening = {address for address in listening if address.ip != "127.0.0.1"}
    assert {address.ip for address in listening} == {"10.77.0.1"}
    with zmq.Context() as context:
        channels = [context.socket(zmq.SUB) for _ in listening]
        for address, channel in zip(listening, channels, strict=True):
            channel.linger = 0
            channel.subscribe(b"")
            channel.connect(f"tcp://{stranger}:0;{address.ip}:{address.port}")
        assert four.run("%%px\nprint('heard by nobody else')").ok
        heard = [channel for channel in channels if channel.poll(300)]
        for channel in channels:
            channel.close()
    assert heard == []
