"""`update_display` and `clear_output` of ranks: ipyparallel leaves both out of its record."""

from typing import Any


class OutputChanges:
    """Changes ipyparallel's record of one rank's output as a notebook would change the output.

    record: the dict with "stdout", "stderr" and "outputs". Call it with each message of the rank,
    after ipyparallel has put it into the record; that is in ipyparallel's own thread."""

    def __init__(self, record: dict):
        self.record = record
        self._clear_at: tuple[int, int, int] | None = None  # what was there at clear_output(True)

    def __call__(self, message: dict[str, Any]) -> None:
        kind, content = message["header"]["msg_type"], message["content"]
        if kind == "clear_output":
            streams = self.record["stdout"], self.record["stderr"]
            self._clear_at = len(streams[0]), len(streams[1]), len(self.record["outputs"])
            if not content.get("wait"):
                self._clear()
        elif kind in ("stream", "display_data", "execute_result", "error"):
            self._clear()
        elif kind == "update_display_data":
            self._replace(content)

    def _clear(self) -> None:
        if self._clear_at is None:
            return
        stdout, stderr, outputs = self._clear_at
        self._clear_at = None
        # A new list tells CellOutput that something was cleared.
        self.record["outputs"] = self.record["outputs"][outputs:]
        self.record["stdout"] = self.record["stdout"][stdout:]
        self.record["stderr"] = self.record["stderr"][stderr:]

    def _replace(self, content: dict) -> None:
        outputs = self.record["outputs"]
        for at, output in enumerate(outputs):
            if _display_id(output) == _display_id(content) is not None:
                outputs[at] = content


def _display_id(content: dict) -> str | None:
    return (content.get("transient") or {}).get("display_id")


def follow(result) -> None:
    """Keep the records of an ipyparallel AsyncResult up to date with such changes."""
    for future in result._children:
        future.iopub_callbacks.append(OutputChanges(future.output.metadata))
