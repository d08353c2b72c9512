"""Hosts that share two networks: the one whose interface is named has all of the ranks' traffic."""

import psutil

from tests.several_hosts.conftest import SETUP, START, SUM, SUMS


def test_the_interface_that_is_named_has_all_traffic(fast, site, notebook):
    site(f'interface = "{fast}"\n')
    assert (reply := notebook.run(START)).ok, reply.text
    assert notebook.run(SETUP).ok and notebook.run(SUM).text == SUMS
    cell = (
        "%%px\nimport torch\nfrom pi2zero import ranks\nranks.join()\n"
        "torch.distributed.all_reduce(x := torch.ones(1))\n"
        "print(x.item(), os.environ['MASTER_ADDR'], os.environ['GLOO_SOCKET_IFNAME'])"
    )
    text = notebook.run(cell).text
    assert text == "".join(f"[stdout:{rank}] 4.0 10.78.0.11 fast\n" for rank in range(4)), text
    controller = [
        one
        for one in psutil.process_iter(["cmdline"])
        if "ipyparallel.controller" in (one.info["cmdline"] or ())
    ]
    listening = {
        c.laddr.ip
        for one in controller
        for c in one.net_connections("tcp")
        if c.status == psutil.CONN_LISTEN
    }
    assert "10.78.0.1" in listening <= {"10.78.0.1", "127.0.0.1"}
