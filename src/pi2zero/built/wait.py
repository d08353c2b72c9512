"""Wait for a built part, with a bar."""

import time

from pi2zero.built.bar import Bar
from pi2zero.built.known import parts
from pi2zero.built.parts import Part, folder
from pi2zero.built.state import NotBuilt, can_be_built, is_alive, of, waited


def wait_for(*names: str, needed: bool = True, show: bool = True) -> None:
    """Wait until these parts are there ("horovod", "deepspeed"; none: all), with a bar.

    If one could not be built, NotBuilt says why and what to do; with needed=False that is printed, and you go on.
    """
    known = parts()
    for name in names or known:
        if name not in known:
            raise NotBuilt(
                f"There is nothing to be built by the name of {name!r} here. Known: {', '.join(known)}."
            )
        try:
            wait_for_one(known[name], show)
        except NotBuilt as error:
            if needed:
                raise
            print(error)


def wait_for_one(part: Part, show: bool) -> None:
    """Wait until a part is there or has failed; starts the builder where there is none. Raises NotBuilt if it failed."""
    begin, started = time.monotonic(), []
    with Bar() as bar:
        while (now := of(part)).wanted() and can_be_built():
            if show:
                bar.show(str(now), now.share)
            see_to_builder(started)
            waited().touch()
            time.sleep(0.5)
        if bar.was_shown and now.state == "ready":
            bar.end(f"{part.title}: ready, {time.monotonic() - begin:.0f} s")
    if now.state == "failed":
        raise NotBuilt(
            f"{part.title}: {now.why}. What to do: {now.remedy}; then run `make horovod` in a terminal."
        )


def see_to_builder(started: list[float]) -> None:
    """Start the builder if there is none; a moment passes before a new one holds the lock. started: when that was done."""
    from pi2zero.built import builder  # here: a program, see known.py

    if is_alive() or (started and time.monotonic() - started[-1] < 5):
        return
    if len(started) == 3:
        raise NotBuilt(
            f"What builds in the background ends as soon as it is started. Its words: {folder() / 'builder.log'}"
        )
    started.append(time.monotonic())
    builder.start()
