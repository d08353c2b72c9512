"""Where this repository is, and its published site: python tools/address.py [NEW]

The address is `repository-code` in CITATION.cff. With NEW, such as https://github.com/me/kit, it
is written there and into every other file of the repository that names it or the site.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SETTING = re.compile(r'^repository-code: "(https://github\.com/[\w-]+/[\w.-]+)"$', re.MULTILINE)


def repository() -> str:
    return SETTING.search((ROOT / "CITATION.cff").read_text())[1]


def site(repository: str) -> str:
    """Where GitHub Pages publishes what .github/workflows/publish.yml builds."""
    owner, name = repository.split("/")[-2:]
    return f"https://{owner}.github.io/{name}"


def replaced(text: str, old: str, new: str) -> str:
    """The text with the new site's address and the new OWNER/NAME, also in badges' addresses."""
    text = text.replace(site(old), site(new))
    return text.replace("/".join(old.split("/")[-2:]), "/".join(new.split("/")[-2:]))


def main() -> None:
    old = repository()
    if len(sys.argv) == 1:
        sys.exit(print(old, site(old), sep="\n"))
    new = sys.argv[1].removesuffix("/").removesuffix(".git")
    if not SETTING.fullmatch(f'repository-code: "{new}"'):
        sys.exit(f"{new} is no address like https://github.com/OWNER/NAME")
    for name in subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines():
        before = (ROOT / name).read_bytes()
        after = replaced(before.decode(errors="surrogateescape"), old, new)
        if (encoded := after.encode(errors="surrogateescape")) != before:
            (ROOT / name).write_bytes(encoded)
            print(name)


if __name__ == "__main__":
    main()
