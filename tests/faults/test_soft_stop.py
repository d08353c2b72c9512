"""The first press of the stop button ends a loop that asks, after the same step on all ranks."""

import re
import threading

from timing import assert_within

from pi2zero.cluster.soft_stop import PATIENCE

from .kernel import START

SETUP = (
    "%%px\nimport time\nfrom mpi4py import MPI\nfrom pi2zero import ranks\ncomm = MPI.COMM_WORLD"
)
TRAINS = """%%px
done, after = 0, False
print('on', flush=True)
for step in range(100_000):
    comm.allreduce(step)
    time.sleep(0.002 * comm.rank)
    done += 1
    if ranks.stopping():
        break
after = True"""
ASKS_ONCE = "%%px\nranks.stopping()\nprint('on', flush=True)\ncomm.recv(source=0)"


def test_a_loop_that_asks_keeps_its_variables(notebook):
    assert notebook.run(f"{START}\npids = [about['pid'] for about in cluster.info]").ok
    assert notebook.run(SETUP).ok
    for _ in range(2):  # the next loop has to be asked anew
        reply = notebook.run(TRAINS, interrupt_after=0.7)
        told = re.search(
            r"Stopped at step (\d+); the ranks and their variables are there\.", reply.text
        )
        assert told and "interrupted" not in reply.text, reply.text
        reply = notebook.run("%%px\nassert after and done < 100_000\nprint(comm.allgather(done))")
        assert reply.text == "".join(f"[stdout:{r}] [{told[1]}, {told[1]}]\n" for r in (0, 1))
    assert notebook.run("assert pids == [about['pid'] for about in cluster.info]").ok

    # A later cell without such a loop is ended as ever.
    reply = notebook.run("%%px\nprint('on', flush=True)\ntime.sleep(60)", interrupt_after=0.5)
    assert "You interrupted the cell" in reply.text and "time.sleep(60)" in reply.text
    assert_within(reply.seconds, 0.6 * PATIENCE)


def test_a_second_press_ends_ranks_that_do_not_leave(notebook):
    assert notebook.run(START).ok and notebook.run(SETUP).ok
    second = threading.Timer(3, notebook.manager.interrupt_kernel)
    second.start()
    reply = notebook.run(ASKS_ONCE, interrupt_after=0.5)
    second.join()
    assert "You interrupted the cell" in reply.text and "comm.recv(source=0)" in reply.text
    assert_within(reply.seconds, PATIENCE)


def test_a_loop_that_asks_no_more_is_ended(notebook):
    assert notebook.run(START).ok and notebook.run(SETUP).ok
    reply = notebook.run(ASKS_ONCE, interrupt_after=0.5)
    assert "You interrupted the cell" in reply.text and reply.seconds > PATIENCE
    assert_within(reply.seconds, PATIENCE + 8)


def test_a_script_is_never_stopped():
    from pi2zero import ranks

    assert ranks.stopping() is False
