"""The sampler parses what it sees while a learner's cell compiles: neither disturbs the other."""

import subprocess
import sys

# A switch between the threads at every garbage collection, and very many of those.
RACE = """
import ast, gc, sys, threading, time
from pi2zero.cluster import safe_ast

gc.callbacks.append(lambda *_: time.sleep(0))
gc.set_threshold(20)
parse = safe_ast.parse if sys.argv[1] == "safe" else ast.parse
wrong, parsed, over = [], [], False

def sample():
    while not over:
        try:
            parse("f(a.b, [1, 2, 3], g(h(i(j))))")
            parsed.append(1)
        except safe_ast.ParserBusyError:
            pass
        except SystemError as error:
            wrong.append(error)

sampler = threading.Thread(target=sample)
sampler.start()
end = time.monotonic() + (2 if sys.argv[1] == "safe" else 30)
while time.monotonic() < end and not wrong:
    try:
        ast.parse("x = f(a, [b, (c + d) * 2], {'k': g(h(i))})\\n" * 30)
    except SystemError as error:
        wrong.append(error)
over = True
sampler.join()
assert parsed
print(len(wrong))
"""


def errors(parser) -> int:
    command = [sys.executable, "-c", RACE, parser]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return int(done.stdout)


def test_no_thread_spoils_another_s_tree():
    assert errors("safe") == 0
    if sys.version_info < (3, 11, 8):  # there the race is real
        assert errors("ast") > 0
