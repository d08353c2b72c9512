"""`make links`: requests every external address of the site, and lists the broken ones.

No network is not a failure. Neither is a site that refuses programs (401, 403, 429).
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
NOT_SET = "THE_OWNER"  # until tools/address.py has written the repository's address
# How Sphinx's message on an address begins
REFUSED = re.compile(r"(401|403|429)\b|Unauthorized|Forbidden|Too Many Requests")


def answers(address):
    try:
        urllib.request.urlopen(address, timeout=5).close()  # noqa: S310  (addresses of the site's own pages)
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def check(source, out):
    """Sphinx's report on each address: dicts with `uri`, `status`, `info`, `filename`, `lineno`."""
    build.sphinx(build.environment(), "linkcheck", source, out)
    lines = (out / "output.json").read_text().splitlines()
    results = [result for result in map(json.loads, lines) if result["uri"].startswith("http")]
    return [result for result in results if NOT_SET not in result["uri"]]


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
    results = check(source, out / "links")
    broken = [result for result in results if result["status"] in ("broken", "timeout")]
    refused = [result for result in broken if REFUSED.match(result["info"])]
    for result in broken:
        problem = "refuses programs" if result in refused else "does not answer well"
        print(f"{result['filename']}: {result['uri']} {problem}: {result['info']}")
    wrong = len(broken) - len(refused)
    print(
        f"{len(results)} addresses: {len(results) - len(broken)} answer, {len(refused)} refuse "
        f"programs, {wrong} are broken"
    )
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
