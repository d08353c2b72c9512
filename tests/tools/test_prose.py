"""tools/prose.py finds the words that the field does not use, in prose only."""

import json
import subprocess
import sys
from pathlib import Path

import prose

ROOT = Path(__file__).parents[2]
PAGE = """# A page

Stage 1 deals
out the states, `beside` code: [for ever](mend.md).

```
nobody mends code
```

It sends 4 bytes a parameter.
"""


def test_a_planted_word_is_reported_with_its_file_and_line(tmp_path):
    (tmp_path / "page.md").write_text(PAGE)
    command = [sys.executable, ROOT / "tools" / "prose.py", tmp_path / "page.md"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert [line.split(";")[0] for line in done.stdout.splitlines()] == [
        f'{tmp_path}/page.md:3: "deals out"',
        f'{tmp_path}/page.md:4: "for ever"',
        f'{tmp_path}/page.md:10: "bytes a parameter"',
    ]


def test_of_a_notebook_its_markdown_cells_are_searched(tmp_path):
    code = {"cell_type": "code", "source": ["# wait for ever"]}
    page = {"cell_type": "markdown", "source": PAGE.splitlines(keepends=True)}
    (tmp_path / "book.ipynb").write_text(json.dumps({"cells": [code, page]}))
    assert [message.split(";")[0] for message in prose.finds_in(tmp_path / "book.ipynb")] == [
        f'{tmp_path}/book.ipynb:cell 1:3: "deals out"',
        f'{tmp_path}/book.ipynb:cell 1:4: "for ever"',
        f'{tmp_path}/book.ipynb:cell 1:10: "bytes a parameter"',
    ]


def test_the_rewritten_files_are_searched_and_pass():
    names = {path.relative_to(ROOT).as_posix() for path in prose.files()}
    assert {"README.md", "docs/start.md", "site/pages/glossary.md", "site/quiz/6.toml"} <= names
    assert not [message for path in prose.files() for message in prose.finds_in(path)]
