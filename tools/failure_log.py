"""Run pytest, count outcomes and keep the first line of each error, for tools/check.py.

  PI2ZERO_TEST_LOG=FILE python tools/failure_log.py OPTIONS OF PYTEST

Not by PYTHONPATH: the ranks that tests start would find the modules of tools/, too.
"""

import json
import os
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

LOG = "PI2ZERO_TEST_LOG"  # the environment variable that names the JSON file to write
COLOUR = re.compile(r"\x1b\[[\d;]*m")
outcomes: Counter[str] = Counter()
errors: dict[str, str] = {}  # by the test's id
seconds: Counter[str] = Counter()  # by file


def pytest_runtest_logreport(report):
    seconds[report.nodeid.split("::")[0]] += report.duration
    if report.failed:
        error = errors.setdefault(report.nodeid, first_error(report.longreprtext))
        print(f"\nFAILED {report.nodeid}: {error}", flush=True)  # a run may be cut short
    elif report.skipped or report.when == "call":
        outcomes[report.outcome] += 1


def first_error(text: str) -> str:
    """The line of a report that says what went wrong, or "Cell 5: Cell outputs differ" of nbval's.

    Its last line if none does.
    """
    lines = COLOUR.sub("", text).strip().splitlines() or ["it ended without a report"]
    errors = [line for line in lines if line.startswith(("E  ", "Cell "))] or lines[-1:]
    return errors[0].removeprefix("E  ").strip()


def pytest_sessionfinish(session):
    if not hasattr(session.config, "workerinput"):  # pytest-xdist's workers report to this process
        files = {file: round(spent, 1) for file, spent in seconds.most_common()}
        result = {"outcomes": outcomes, "errors": errors, "seconds": files}
        Path(os.environ[LOG]).write_text(json.dumps(result))


if __name__ == "__main__":
    sys.exit(pytest.main(["-p", "failure_log", *sys.argv[1:]]))
