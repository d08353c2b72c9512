"""Which parts an environment has."""

from pi2zero.built.parts import ROOT, Part, version_of_package


def parts() -> dict[str, Part]:
    """The parts of this environment, in the order in which they are built. The quick one first."""
    from pi2zero.built.horovod import Horovod
    from pi2zero.built.operators import (
        Operators,
    )  # here: it is a program, too, and Python warns of one that is loaded already

    made = [Operators()] if version_of_package("deepspeed") else []
    if (ROOT / "requirements.lock").exists() and (
        version_of_package("torch") or version_of_package("tensorflow-cpu")
    ):
        made.append(Horovod())
    return {part.name: part for part in made}
