"""What a compiler has to make on this machine: Horovod, and DeepSpeed's operators for CPUs. Built in the background.

`wait_for("horovod")` in a notebook, `python -m pi2zero built` in a terminal. How it goes:

    parts.py      what a part depends on, whether it is there, how it is built; horovod.py and operators.py are the two
    known.py      which of them an environment has
    cache.py      finished parts in the user's cache folder, for the next clone
    bytecode.py   what Python makes of the packages' sources, made first
    builder.py    the one background process of an environment that builds what is missing
    state.py      how far it is, for whoever wants to know
    wait.py       and for whoever waits

Only the standard library and psutil: the environment of `make tensorflow` has no more.
"""

from pi2zero.built.state import NotBuilt, State, can_be_built, states
from pi2zero.built.wait import wait_for

__all__ = ["NotBuilt", "State", "can_be_built", "states", "wait_for"]
