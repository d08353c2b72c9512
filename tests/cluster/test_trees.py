"""The thread that looks at a rank parses what it sees while the learner's cell is compiled: neither disturbs the other."""

import subprocess
import sys

from pi2zero.cluster.trees import BUILD, builds_a_tree

# A switch between the threads at every collection of garbage, and very many of those.
RACE = """
import ast, gc, sys, threading, time
from pi2zero.cluster.trees import Building, parsed

gc.callbacks.append(lambda *_: time.sleep(0))
gc.set_threshold(20)
guarded, wrong, built, over = sys.argv[1] == "guarded", [], [], False

def look():
    while not over:
        try:
            (parsed if guarded else ast.parse)("f(a.b, [1, 2, 3], g(h(i(j))))")
            built.append(1)
        except Building:
            pass
        except SystemError as error:
            wrong.append(error)

looker = threading.Thread(target=look)
looker.start()
end = time.monotonic() + (2 if guarded else 30)
while time.monotonic() < end and not wrong:
    try:
        ast.parse("x = f(a, [b, (c + d) * 2], {'k': g(h(i))})\\n" * 30)
    except SystemError as error:
        wrong.append(error)
over = True
looker.join()
assert built
print(len(wrong))
"""


def wrong(how) -> int:
    return int(
        subprocess.run(
            [sys.executable, "-c", RACE, how],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
    )


def test_no_thread_spoils_another_s_tree():
    assert wrong("guarded") == 0
    if sys.version_info < (3, 11, 8):  # there the race is real
        assert wrong("as it is") > 0


def test_who_builds_a_tree_is_seen():
    names = {"sys": sys}
    for file in (
        "/lib/python3.11/ast.py",
        "/site-packages/IPython/core/compilerop.py",
        "/home/learner/broadcast.py",
    ):
        exec(compile("def f(g):\n    return g()", file, "exec"), names)
        assert names["f"](lambda: builds_a_tree(sys._getframe())) == file.endswith(BUILD)
    assert not builds_a_tree(sys._getframe())
