"""`python -m pi2zero doctor [--json] [--short] [--seats FOLDER] [--report]`, `... build [--wait]`,
`... site [--write]`, `... plan FILE` and `... reset`."""

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from pi2zero.requirements import UnsupportedSystemError, require_linux

DOCTOR = {
    "--json": "for programs: one JSON object",
    "--quick": "only what takes no time: starts no ranks, loads no torch",
    "--background": "patiently; one line at the end",
    "--short": "one line: GREEN, or RED and what failed",
}
SEATS = "one table of what --json wrote at all seats of a room, FOLDER/SEAT.json"
REPORT = "pack logs, versions and settings, without secrets, to attach to a report of a mistake"
BUILD = {
    "--wait": "wait until they are ready; exit status 1 if one cannot be compiled",
    "--again": "try again what has failed; with HOROVOD_... options, compile Horovod anew",
    "--stop": "end the compiling",
}


def main() -> int:
    """Do what the command line asks for; return the exit status, 2 for a wrong command line."""
    parser = argparse.ArgumentParser(
        prog="python -m pi2zero", description="From π to ZeRO: look after the machine."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add_command(name, function, words, flags):
        command = commands.add_parser(name, help=words)
        command.set_defaults(function=function)
        for flag, meaning in flags.items():
            command.add_argument(flag, action="store_true", help=meaning)
        return command

    doctor = add_command(
        "doctor", look, "what this machine has, what is missing, what to do", DOCTOR
    )
    doctor.add_argument("--seats", metavar="FOLDER", help=SEATS)
    doctor.add_argument(
        "--report", metavar="FILE.zip", type=Path, nargs="?", const=Path(), help=REPORT
    )
    add_command("reset", reset, "end what the kit has started from this clone on this host", {})
    words = "compile Horovod and DeepSpeed's operators in the background"
    build = add_command("build", build_parts, words, BUILD)
    build.add_argument("names", nargs="*", help="horovod, deepspeed; none: all", metavar="NAME")
    words = "where ranks run when nobody says it: check the site file, and try it"
    site = add_command("site", try_site, words, {"--write": "write a file to begin with"})
    site.add_argument("-n", type=int, default=4, help="ranks to try it with (4)")
    words = "layouts of a model on a machine: what fits, what is fastest, why the others lose"
    plan = add_command("plan", make_plan, words, {"--example": "print a file to begin with"})
    words = "the model and the machine, as --example shows it"
    plan.add_argument("file", nargs="?", type=Path, help=words, metavar="model.toml")
    plan.add_argument("--best", type=int, default=10, help="layouts to show (10)")
    options = parser.parse_args()
    if options.command != "plan":
        try:
            require_linux()
        except UnsupportedSystemError as error:
            sys.exit(str(error))
    return options.function(options)


def look(options) -> int:
    """Exit status 1 if something failed, else 0."""
    from pi2zero import doctor
    from pi2zero.doctor import report, seats
    from pi2zero.native_build import builder

    if options.report:
        path = report.write(None if options.report == Path() else options.report)
        print(f"{path.resolve()}: its README.txt says what is inside. Read it before you send it.")
        return 0
    if options.seats:
        try:
            return int(seats.show(Path(options.seats)) > 0)
        except FileNotFoundError as error:
            print(error)
            return 2
    start = time.monotonic()
    if options.quick:
        results = doctor.quick()
    elif options.background:
        results = doctor.run_in_background()
    else:
        builder.start()  # if it was interrupted
        results = doctor.run() if options.json or options.short else doctor.show()
    status = doctor.status(results)
    if options.short:
        print(seats.code(results), file=sys.stderr if options.json else sys.stdout)
    if options.json:
        seconds = round(time.monotonic() - start, 2)
        checks = [asdict(result) for result in results]
        print(json.dumps({"status": status, "seconds": seconds, "checks": checks}, indent=1))
    return int(status == "failed")


def try_site(options) -> int:
    """Exit status 1 if the site file is wrong, or ranks do not start as it says."""
    from pi2zero.cluster.api import start
    from pi2zero.cluster.engines import ClusterError
    from pi2zero.hosts import place, site

    if options.write:
        print(site.write())
        return 0
    try:
        where = f"on = {site.load().on!r}"
        if not site.path().exists():
            where = "not there; ranks run on this machine"
        print(f"{site.path()}: {where}")
        start(options.n).stop()
    except (place.PlaceError, ClusterError) as error:
        print(f"\n{error}")
        return 1
    return 0


def make_plan(options) -> int:
    """Exit status 1 if nothing fits, 2 if the file cannot be read or is wrong."""
    from pi2zero import costs

    if options.example:
        print(costs.EXAMPLE, end="")
        return 0
    if options.file is None:
        print("plan: which file? `python -m pi2zero plan --example > model.toml` writes one.")
        return 2
    try:
        plan = costs.plan_from(options.file.read_text())
    except (OSError, ValueError) as error:  # ValueError: also what is no text
        print(f"{options.file}: {error.strerror if isinstance(error, OSError) else error}")
        return 2
    print(costs.plan_text(plan, options.best))
    return int(not plan.fitting)


def build_parts(options) -> int:
    """Exit status 1 if something could not be compiled."""
    from pi2zero.native_build import NotBuiltError, builder, statuses, wait_for

    if options.stop:
        builder.stop()
        return 0
    builder.start(again=options.again)
    try:
        if options.wait:
            wait_for(*options.names)
    except NotBuiltError as error:
        print(error)
    except KeyboardInterrupt:
        print("It goes on in the background.")
    shown = [each for each in statuses() if not options.names or each.part.NAME in options.names]
    print(*shown, sep="\n")
    return int(any(each.state == "failed" for each in shown))


def reset(options) -> int:
    """End what the kit has started from this clone on this host, and say what that was."""
    from pi2zero.cluster import api

    print(api.reset())
    return 0


if __name__ == "__main__":
    sys.exit(main())
