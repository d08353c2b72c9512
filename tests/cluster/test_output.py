"""What a rank prints beyond a page's cap goes to a file, up to its own limit, which is said."""

import io

from pi2zero.cluster import output


def test_the_rest_is_in_a_file_and_so_is_where_that_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(output, "FILE_LIMIT", 100)
    page = io.StringIO()
    capped = output.Capped(
        page, tmp_path / "own" / "0.out", size=output.LINES
    )  # each of so many ranks has 50 lines
    for number in range(60):
        capped.write(f"line {number}\n")
    capped.write("x" * 200 + "\n")
    capped.end_cell()
    shown, rest = page.getvalue().splitlines(), (tmp_path / "own" / "0.out").read_text()
    assert shown[49] == "line 49" and shown[50].startswith(
        "... more than a page can hold: the rest is in "
    )
    assert rest.startswith("line 50\n") and rest.count("line") == 10
    assert rest.endswith("x\n... cut: this file has no more than 100 bytes\n") and len(rest) < 160
