"""`python -m pi2zero doctor [--json]` and `python -m pi2zero reset`."""

import argparse
import json
import sys
import time
from dataclasses import asdict


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m pi2zero", description="From π to ZeRO: look after the machine.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    doctor = commands.add_parser("doctor", help="what this machine has, what is missing, and what to do about it")
    doctor.add_argument("--json", action="store_true", help="for programs: one JSON object")
    commands.add_parser("reset", help="end every process of yours that the kit has started, and nothing else")
    options = parser.parse_args()
    return look(options.json) if options.command == "doctor" else reset()


def look(as_json: bool) -> int:
    """Exit status 1 if something failed, else 0."""
    from pi2zero import doctor

    start = time.monotonic()
    results = doctor.run() if as_json else doctor.show()
    status = doctor.status(results)
    if as_json:
        seconds = round(time.monotonic() - start, 2)
        print(json.dumps({"status": status, "seconds": seconds, "checks": [asdict(r) for r in results]}, indent=1))
    return int(status == "failed")


def reset() -> int:
    from pi2zero import reset

    print(reset())
    return 0


if __name__ == "__main__":
    sys.exit(main())
