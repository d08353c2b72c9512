"""What ranks printed and displayed, shown after a cell has ended, in one of ipyparallel's orders."""

import itertools
import sys

from IPython.display import display


def show_grouped(records: dict[int, dict], groupby: str) -> None:
    """records: {rank: ipyparallel's record of what it printed and displayed}, in the order of the ranks.

    groupby: "type": all stdout, all stderr, all that was displayed; "engine": everything of a rank together; "order": as type,
    but the first picture of each rank, then the second of each, and so on.
    """
    if groupby == "engine":
        for rank, record in records.items():
            show_grouped({rank: record}, "type")
        return
    for name, file in {"stdout": sys.stdout, "stderr": sys.stderr}.items():
        for rank, record in records.items():
            print_labelled(record[name], name, rank, file)
        file.flush()  # a notebook's stdout and stderr are separate: so they come in this order
    outputs = [[(rank, output) for output in record["outputs"]] for rank, record in records.items()]
    turns = itertools.zip_longest(*outputs) if groupby == "order" else outputs
    for rank, output in filter(None, itertools.chain.from_iterable(turns)):
        print(f"[output:{rank}]")
        display(output["data"], metadata=output.get("metadata", {}), raw=True)
    for rank, record in records.items():
        if (reply := record["execute_result"]) is not None:
            print_labelled(reply["data"].get("text/plain", ""), "out", rank, sys.stdout)


def print_labelled(text: str, stream: str, rank: int, file) -> None:
    """Each line with the rank in front, as ipyparallel writes it while it streams."""
    if text:
        print("\n".join(f"[{stream}:{rank}] {line}" for line in text.splitlines()), file=file)
