"""`python -m pi2zero_course room FOLDER`: the instructor's page."""

import argparse
import sys
from pathlib import Path

from pi2zero_course.dashboard import page


def main() -> int:
    """Show the page until Ctrl-C; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m pi2zero_course")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    room = commands.add_parser(
        "room",
        help="one page: tasks against seats, live, of attendees who agreed to it (docs/room.md)",
    )
    room.add_argument(
        "folder", type=Path, help="where their notes are; made if it is not there", metavar="FOLDER"
    )
    room.add_argument(
        "--listen",
        metavar="ADDRESS",
        help="take notes over the network, at this address of this machine",
    )
    room.add_argument(
        "--port",
        type=int,
        default=8900,
        help="of the page, and of the address (8900; 0: a free one)",
    )
    options = parser.parse_args()
    return page.serve(options.folder, options.listen, options.port)


if __name__ == "__main__":
    sys.exit(main())
