"""What a rank prints beyond the cap goes to a file, up to the file's own limit."""

import io

from pi2zero.cluster import capped_stream


def test_the_rest_is_in_a_file_and_so_is_where_that_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(capped_stream, "FILE_LIMIT", 100)
    page, path = io.StringIO(), tmp_path / "own" / "0.out"
    capped = capped_stream.CappedStream(page, path, size=capped_stream.MAX_LINES)  # 50 lines each
    for number in range(60):
        capped.write(f"line {number}\n")
    capped.write("x" * 200 + "\n")
    capped.end_cell()
    shown, rest = page.getvalue().splitlines(), path.read_text()
    assert shown[49] == "line 49"
    assert shown[50].startswith("... more than a page can hold: the rest is in ")
    assert rest.startswith("line 50\n") and rest.count("line") == 10
    assert rest.endswith("x\n... cut: this file has no more than 100 bytes\n") and len(rest) < 160


def test_a_bar_that_overwrites_its_line_does_not_fill_the_page(tmp_path):
    page = io.StringIO()
    capped = capped_stream.CappedStream(page, tmp_path / "own" / "0.err", size=1000)
    for step in range(1000):
        capped.write(f"\r{step:>98}%")
    capped.write("\r\nend\n")
    assert page.getvalue().endswith("999%\r\nend\n") and "more than a page" not in page.getvalue()
    for _ in range(200):
        capped.write("x" * 98 + "\r\n")
    assert "more than a page can hold" in page.getvalue()
