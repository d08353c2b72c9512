"""`make links`: asks for every address outside that the site leads to, and lists those that do not
answer well.

Where there is no network it says so, and that is no failure. A site that refuses programs (401,
403, 429) is told apart from one that is gone.
"""

import argparse
import json
import re
import sys
import urllib.error
import urllib.request
from pathlib import Path

import build
from content import HERE

PROBES = ["https://www.python.org", "https://arxiv.org"]
REFUSED = re.compile(
    r"(401|403|429)\b|Unauthorized|Forbidden|Too Many Requests"
)  # how the words on an address begin


def answers(address):
    try:
        urllib.request.urlopen(address, timeout=5).close()  # noqa: S310  (addresses of the site's own pages)
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def asked(source, out):
    """What came of each address, as Sphinx's linkcheck tells it: dicts with `uri`, `status`,
    `info`, `filename`, `lineno`.
    """
    build.sphinx(build.environment(), "linkcheck", source, out)
    lines = (out / "output.json").read_text().splitlines()
    return [found for found in map(json.loads, lines) if found["uri"].startswith("http")]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--source", type=Path, help="a folder of Markdown pages (default: the site's)"
    )
    parser.add_argument(
        "--out", type=Path, default=HERE / "build", help="where to work (default: site/build)"
    )
    parser.add_argument(
        "--probe", action="append", help="addresses of which one answers where there is a network"
    )
    options = parser.parse_args()
    if not any(map(answers, options.probe or PROBES)):
        print("There is no network here, so no address was asked for.")
        return
    out, source = options.out.resolve(), options.source
    if source is None:
        import stage

        source = out / "source"
        stage.stage(source)
    found = asked(source, out / "links")
    broken = [one for one in found if one["status"] in ("broken", "timeout")]
    refused = [one for one in broken if REFUSED.match(one["info"])]
    for one in broken:
        word = "refuses programs" if one in refused else "does not answer well"
        print(f"{one['filename']}: {one['uri']} {word}: {one['info']}")
    wrong = len(broken) - len(refused)
    print(
        f"{len(found)} addresses: {len(found) - len(broken)} answer, {len(refused)} refuse "
        f"programs, {wrong} are broken"
    )
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
