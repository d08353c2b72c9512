"""The checks of the blanks in notebooks 09, 09b and 09c that stay in the notebook's kernel."""

from contextlib import suppress

import numpy as np

from pi2zero import costs
from pi2zero_course.checks.framework.answers import speaking_of
from pi2zero_course.checks.framework.task import Blank, blank, compare


def _adam(
    w,
    gradient,
    m,
    v,
    t,
    lr=0.1,
    beta1=0.9,
    beta2=0.999,
    eps=1e-8,
    corrected=True,
    root=True,
    added="after",
):
    m[:] = beta1 * m + (1 - beta1) * gradient
    v[:] = beta2 * v + (1 - beta2) * gradient**2
    m_hat, v_hat = (m / (1 - beta1**t), v / (1 - beta2**t)) if corrected else (m, v)
    below = (np.sqrt(v_hat) if root else v_hat) + eps
    if added == "inside":
        below = np.sqrt(v_hat + eps)
    elif added == "early":  # as in Kingma and Ba's shorter form, whose eps differs
        below = (np.sqrt(v) + eps) / np.sqrt(1 - beta2**t)
    w -= lr * m_hat / below


def _after(step):
    """step(w, gradient, m, v, t, ...) as a function of t and what follows it: {"w", "m", "v"}
    after it."""

    def run(t, *others):
        w, m, v = np.array([3.0, -2.0]), np.array([0.1, -0.2]), np.array([0.3, 0.4])
        step(w, np.array([6.0, -400.0]), m, v, t, *others)
        return {"w": w, "m": m, "v": v}

    return speaking_of(step, run)


def _mistaken(**options):
    return _after(lambda *given: _adam(*given, **options))


_ADAM_MISTAKES = {
    "Nothing has changed: m[:] = ..., v[:] = ..., w -= ... work in place, "
    "m = ... does not.": _after(lambda *given: None),
    "w is right, but m and v are as before: m[:] = ... works in place, m = ... does not.": _after(
        lambda w, gradient, m, v, *others: _adam(w, gradient, m.copy(), v.copy(), *others)
    ),
    "The bias correction is missing: divide m by 1 - beta1**t, v by 1 - beta2**t.": _mistaken(
        corrected=False
    ),
    "Divide by the square root of v, the usual size of a gradient, not its square.": _mistaken(
        root=False
    ),
    "w goes uphill: subtract.": _mistaken(lr=-0.1),
}
_EPS_MISTAKES = {
    "eps is added to the corrected root, sqrt(v_hat), not to sqrt(v).": _mistaken(added="early"),
    "eps is added to the root of v_hat, not under the root.": _mistaken(added="inside"),
}


@blank
def adam_step(function):
    """adam_step(w, gradient, m, v, t, lr=0.1, ...): one step of Adam, in place; t counts from 1."""
    answer, reference = _after(function), _after(_adam)
    compare(answer, reference, [(1,), (7,)], _ADAM_MISTAKES, tolerance=1e-9)
    numbers = {"lr": 0.1, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
    for name, other in {"lr": 0.5, "beta1": 0.5, "beta2": 0.9, "eps": 1.0}.items():
        given = (3, *(numbers | {name: other}).values())
        # All else was right up to here.
        argument = {f"{name} is an argument: it need not be {numbers[name]:g}.": answer}
        mistakes = (_EPS_MISTAKES if name == "eps" else {}) | argument
        compare(answer, reference, [given], mistakes, tolerance=1e-9)
    return "Parameters and both moments are Adam's, in steps 1 and 7."


def _zero_total(psi, n, stage):
    return float(costs.zero_total(psi, n, stage))


# bytes_on_a_rank(psi, n, stage) -> bytes of parameters, gradients and optimizer on one rank
bytes_on_a_rank = Blank(
    name="bytes_on_a_rank",
    reference=_zero_total,
    cases=[(7.5e9, 64, stage) for stage in (2, 3, 1, 0)] + [(60.5e6, 1, 3), (1e6, 4, 2)],
    mistakes={
        "Each stage divides one thing more: 1 the optimizer's 12 bytes, 2 the gradients, 3 the "
        "parameters.": (lambda psi, n, stage: 16 * psi / (n if stage else 1)),
        "Nothing is divided by n.": lambda psi, n, stage: 16.0 * psi,
        "That is one stage less.": lambda psi, n, stage: _zero_total(psi, n, max(stage - 1, 0)),
        "The optimizer has 12 bytes: master copy, m and v, 4 each. Are all three there?": (
            lambda psi, n, stage: _zero_total(psi, n, stage) - 8 * psi / (n if stage else 1)
        ),
        "That is on all ranks together.": (
            lambda psi, n, stage: _zero_total(psi, n, stage) * (n if stage else 1)
        ),
    },
    verified="It agrees with the paper's formula at every stage, and with one rank.",
)


def _one_way_seconds(parameters, lanes=16):
    return 2 * parameters / (lanes * 8e9 * 128 / 130 / 8)


# one_way_seconds(parameters, lanes=16) -> s for 2 bytes per parameter over PCIe 3.0
one_way_seconds = Blank(
    name="one_way_seconds",
    reference=_one_way_seconds,
    cases=[(13e9,), (1e9, 4)],
    mistakes={
        "8 Gbit/s are 1 GB/s: divide by 8 bits per byte.": 1 / 8,
        "Of 130 bits on the link only 128 are data.": 128 / 130,
        "Each parameter has 2 bytes.": 1 / 2,
        "The lanes carry at the same time.": lambda p, lanes=16: _one_way_seconds(p, 1),
    },
    verified="It is bytes over bytes per second, 128 of 130 bits being data.",
)


def _first_fit(memory, size, kind):
    for start in range(len(memory) - size + 1):
        if not memory[start : start + size].any():
            memory[start : start + size] = kind
            return slice(start, start + size)
    raise MemoryError


def _outcome_of(allocate):
    """allocate(memory, size, kind) as a function of the cells and a size: the memory afterwards
    and where the returned slice begins and ends, or "MemoryError"."""

    def run(cells, size):
        memory = np.array(cells)
        try:
            place = allocate(memory, size, 3)
        except MemoryError:
            return "MemoryError"
        return memory.tolist(), (place.start, place.stop) if isinstance(place, slice) else None

    return speaking_of(allocate, run)


def _without_error(memory, size, kind):
    with suppress(MemoryError):
        return _first_fit(memory, size, kind)


@blank
def first_fit(function):
    """first_fit(memory, size, kind) -> the slice of the first gap of `size` free cells, filled
    with `kind`; or MemoryError."""
    mistakes = {
        "The first place where all `size` cells are FREE counts, also the last place in memory.": (
            _outcome_of(lambda memory, size, kind: _first_fit(memory[:-1], size, kind))
        ),
        "Return slice(start, start + size), for freeing them later.": (
            _outcome_of(lambda *given: _first_fit(*given) and None)
        ),
        "Enough cells are free, but not together: it has to raise MemoryError.": (
            _outcome_of(_without_error)
        ),
    }
    cases = [
        ([0, 1, 0, 0, 2, 0, 0, 0], 2),
        ([1, 1, 0, 0, 0], 3),
        ([0, 0, 1, 0], 1),
        ([0, 0, 1, 0, 0], 3),
    ]
    compare(_outcome_of(function), _outcome_of(_first_fit), cases, mistakes)
    return (
        "It takes the first gap that is large enough, and raises MemoryError where there is none."
    )


def _activation_bytes(tokens, h, layers, words, each=4):
    return each * tokens * (16 * h * layers + words)


# activation_bytes(tokens, h, layers, words, each=4) -> bytes that forward saves
activation_bytes = Blank(
    name="activation_bytes",
    reference=_activation_bytes,
    cases=[(256, 256, 1, 1024), (256, 256, 4, 8192), (100, 64, 2, 50, 2)],
    mistakes={
        "The logits are missing: one value for each word, for each token.": (
            lambda t, h, n, w, each=4: each * t * 16 * h * n
        ),
        "Each layer saves its 16 h.": lambda t, h, n, w, each=4: each * t * (16 * h + w),
        "Those are values; multiply by `each`, the bytes of one.": (
            lambda t, h, n, w, each=4: _activation_bytes(t, h, n, w, 1)
        ),
        "`each` says how many bytes a value has; it is not always 4.": (
            lambda t, h, n, w, each=4: _activation_bytes(t, h, n, w, 4)
        ),
    },
    verified="Both grow with the tokens; the logits do not care how many layers there are.",
)


def _mfu(parameters, tokens, seconds, peak):
    return 6 * parameters * tokens / seconds / peak


# mfu(parameters, tokens, seconds, peak) -> the operations that the model needs, as a share of what
# the processor can do
mfu = Blank(
    name="mfu",
    reference=_mfu,
    cases=[(2e6, 256, 0.5, 1e10), (7e9, 8192, 2.0, 4e14)],
    mistakes={
        "That is forward alone: backward takes 4 more, 6 in all.": 1 / 3,
        "Recomputed operations do not count: the model needs 6.": 8 / 6,
        "Those are operations per second: divide by `peak`.": lambda p, t, s, peak: _mfu(
            p, t, s, 1
        ),
        "`peak` is per second: divide by the seconds, too.": lambda p, t, s, peak: _mfu(
            p, t, 1, peak
        ),
    },
    verified="What the model needs, over what the processor could have done meanwhile.",
)


def _held(psi, hosts, g, copy=2.0):
    stage3 = 16 * psi / (hosts * g)
    return stage3, stage3 + copy * psi / g, 16 * psi / g


# held(psi, hosts, g) -> bytes on a rank at stage 3, with hpZ and with HSDP
held = Blank(
    name="held",
    reference=_held,
    cases=[(40e9, 2, 4), (7e9, 3, 8)],
    mistakes={
        "hpZ partitions its copy inside each host: among g ranks, not among all.": (
            lambda psi, hosts, g: _held(psi, hosts, g, copy=2 / hosts)
        ),
        "hpZ's copy is of the parameters alone, 2 bytes each.": (
            lambda psi, hosts, g: _held(psi, hosts, g, copy=16)
        ),
        "hpZ's copy comes on top of what stage 3 holds.": (
            lambda psi, hosts, g: (16 * psi / (hosts * g), 2 * psi / g, 16 * psi / g)
        ),
        "HSDP partitions inside a host only: among g ranks.": (
            lambda psi, hosts, g: (*_held(psi, hosts, g)[:2], 16 * psi / (hosts * g))
        ),
        "Stage 3 first, then hpZ, then HSDP.": lambda psi, hosts, g: _held(psi, hosts, g)[::-1],
    },
    verified="Stage 3 holds least; hpZ pays with a copy, HSDP with all of it for each host.",
)
