"""The checks of the blanks in notebooks 09, 09b and 09c that stay in the notebook's kernel."""

from contextlib import suppress

import numpy as np

from pi2zero import costs
from pi2zero_course.checks.blanks import blank
from pi2zero_course.checks.blanks.compare import compare, shown
from pi2zero_course.checks.framework.base import CheckFailed, answer


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
    elif added == "early":  # as in Kingma and Ba's shorter form, whose eps is another one
        below = (np.sqrt(v) + eps) / np.sqrt(1 - beta2**t)
    w -= lr * m_hat / below


@blank
def adam_step(function):
    """adam_step(w, gradient, m, v, t, lr=0.1, ...): one step of Adam, in place; t counts from 1."""

    def after(step):
        def run(t, *others):
            w, m, v = np.array([3.0, -2.0]), np.array([0.1, -0.2]), np.array([0.3, 0.4])
            step(w, np.array([6.0, -400.0]), m, v, t, *others)
            return {"w": w, "m": m, "v": v}

        run.__wrapped__ = step
        return run

    def mistaken(**options):
        return after(lambda *given: _adam(*given, **options))

    def squares(w, gradient, m, v, t, *others):
        _adam(w, gradient, m, v, t, *others)
        v[:] = v - 0.001 * gradient**2 + 0.001 * gradient

    def only_w(w, gradient, m, v, t, *others):
        _adam(w, gradient, m.copy(), v.copy(), t, *others)

    def uphill(w, gradient, m, v, t, lr=0.1, *others):
        _adam(w, gradient, m, v, t, -lr, *others)

    mistakes = [
        (
            after(lambda *given: None),
            "Nothing has changed: m[:] = ..., v[:] = ... and w -= ... work in place, m = ... does not.",
        ),
        (
            after(only_w),
            "w is right, but m and v are as before: m[:] = ... works in place, m = ... does not.",
        ),
        (
            mistaken(corrected=False),
            "The bias correction is missing: divide m by 1 - beta1**t, v by 1 - beta2**t.",
        ),
        (
            mistaken(root=False),
            "Divide by the square root of v, the usual size of a gradient, not its square.",
        ),
        (after(squares), "v is a mean of squares: gradient**2."),
        (after(uphill), "w goes uphill: subtract."),
    ]
    compare(after(function), after(_adam), [(1,), (7,)], mistakes, tolerance=1e-9)
    numbers = {"lr": 0.1, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
    for name, other in {"lr": 0.5, "beta1": 0.5, "beta2": 0.9, "eps": 1.0}.items():
        given = (3, *(numbers | {name: other}).values())
        why = f"{name} is an argument: it need not be {numbers[name]:g}."  # for all else was right up to here
        asked = after(function)
        known = [(asked, why)]
        if name == "eps":
            known.insert(
                0,
                (
                    mistaken(added="inside"),
                    "eps is added to the root of v_hat, not under the root.",
                ),
            )
            known.insert(
                0,
                (
                    mistaken(added="early"),
                    "eps is added to the corrected root, sqrt(v_hat), not to sqrt(v).",
                ),
            )
        compare(asked, after(_adam), [given], known, tolerance=1e-9)
    return "Parameters and both moments are Adam's, in steps 1 and 7."


@blank
def bytes_on_a_rank(function):
    """bytes_on_a_rank(psi, n, stage) -> bytes of parameters, gradients and optimizer on one rank."""

    def right(psi, n, stage):
        return float(costs.zero_total(psi, n, stage))

    mistakes = [
        (
            lambda psi, n, stage: 16 * psi / (n if stage else 1),
            "Each stage divides one thing more: 1 the optimizer's 12 bytes, 2 the gradients, 3 the parameters.",
        ),
        (lambda psi, n, stage: 16.0 * psi, "Nothing is divided by n."),
        (lambda psi, n, stage: right(psi, n, max(stage - 1, 0)), "That is one stage less."),
        (lambda psi, n, stage: right(psi, n, stage) / 1e9, "That is in GB; bytes are due."),
        (
            lambda psi, n, stage: right(psi, n, stage) - 8 * psi / (n if stage else 1),
            "The optimizer has 12 bytes: master copy, m and v, 4 each.",
        ),
        (
            lambda psi, n, stage: right(psi, n, stage) - 4 * psi / (n if stage else 1),
            "The optimizer has 12 bytes: master copy, m and v, 4 each.",
        ),
        (
            lambda psi, n, stage: right(psi, n, stage) * (n if stage else 1),
            "That is on all ranks together.",
        ),
    ]
    cases = [(7.5e9, 64, stage) for stage in (2, 3, 1, 0)] + [(60.5e6, 1, 3), (1e6, 4, 2)]
    compare(function, right, cases, mistakes)
    return "It agrees with the paper's formula at every stage, and with one rank."


@blank
def one_way_seconds(function):
    """one_way_seconds(parameters, lanes=16) -> s for 2 bytes a parameter over PCIe 3.0."""

    def right(parameters, lanes=16):
        return 2 * parameters / (lanes * 8e9 * 128 / 130 / 8)

    mistakes = [
        (lambda p, lanes=16: right(p, lanes) / 8, "8 Gbit/s are 1 GB/s: divide by 8 bits a byte."),
        (
            lambda p, lanes=16: right(p, lanes) * 128 / 130,
            "Of 130 bits on the link only 128 are data.",
        ),
        (
            lambda p, lanes=16: right(p, lanes) * (128 / 130) ** 2,
            "128 of 130 bits are data: the link is slower by that, not faster.",
        ),
        (lambda p, lanes=16: right(p, lanes) / 2, "Each parameter has 2 bytes."),
        (lambda p, lanes=16: right(p, 1), "The lanes carry at the same time."),
    ]
    compare(function, right, [(13e9,), (1e9, 4)], mistakes)
    return "It is bytes over bytes a second, 128 of 130 bits being data."


@blank
def first_fit(function):
    """first_fit(memory, size, kind) -> the slice of the first gap of `size` free cells, filled with `kind`; or MemoryError."""

    def run(cells, size, kind):
        memory, place = np.array(cells), None
        with suppress(MemoryError):  # where there is a gap, the memory tells
            place = function(memory, size, kind)
        return memory, place

    run.__wrapped__ = function
    for cells, size, at in (
        ([0, 1, 0, 0, 2, 0, 0, 0], 2, 2),
        ([1, 1, 0, 0, 0], 3, 2),
        ([0, 0, 1, 0], 1, 0),
    ):
        memory, place = answer(run, cells, size, 3)
        due = np.array(cells)
        due[at : at + size] = 3
        if not np.array_equal(memory, due):
            raise CheckFailed(
                f"{size} cells in {cells}: memory is {memory.tolist()} afterwards; it has to be {due.tolist()}.\n"
                "The first place where all `size` cells are FREE counts, also the last place in memory."
            )
        if not isinstance(place, slice) or (place.start, place.stop) != (at, at + size):
            raise CheckFailed(
                f"{size} cells in {cells}: it returned {shown(place)}, not slice({at}, {at + size}), for freeing them later."
            )
    try:
        function(np.array([0, 0, 1, 0, 0]), 3, 3)
    except MemoryError:
        return "It takes the first gap that is large enough, and raises MemoryError where there is none."
    except Exception as error:
        raise CheckFailed(
            f"3 cells in [0, 0, 1, 0, 0]: it raised {type(error).__name__}: {error}; MemoryError is due."
        ) from None
    raise CheckFailed(
        "3 cells in [0, 0, 1, 0, 0]: 4 are free, but no 3 together; it has to raise MemoryError."
    )


@blank
def activation_bytes(function):
    """activation_bytes(tokens, h, layers, words, each=4) -> bytes that forward saves."""

    def right(tokens, h, layers, words, each=4):
        return each * tokens * (16 * h * layers + words)

    mistakes = [
        (
            lambda t, h, n, w, each=4: each * t * 16 * h * n,
            "The logits are missing: one value for each word, for each token.",
        ),
        (
            lambda t, h, n, w, each=4: each * t * n * (16 * h + w),
            "There is one table of logits, at the end, not one a layer.",
        ),
        (lambda t, h, n, w, each=4: each * t * (16 * h + w), "Each layer saves its 16 h."),
        (
            lambda t, h, n, w, each=4: each * (16 * h * n * t + w),
            "Each token has logits of its own.",
        ),
        (
            lambda t, h, n, w, each=4: right(t, h, n, w, 1),
            "Those are values; multiply by `each`, the bytes of one.",
        ),
        (
            lambda t, h, n, w, each=4: right(t, h, n, w, 4),
            "`each` says how many bytes a value has; it is not always 4.",
        ),
    ]
    compare(
        function, right, [(256, 256, 1, 1024), (256, 256, 4, 8192), (100, 64, 2, 50, 2)], mistakes
    )
    return "Both grow with the tokens; the logits do not care how many layers there are."


@blank
def mfu(function):
    """mfu(parameters, tokens, seconds, peak) -> the operations that the model needs, as a share of what the processor can do."""

    def right(parameters, tokens, seconds, peak):
        return 6 * parameters * tokens / seconds / peak

    mistakes = [
        (
            lambda p, t, s, peak: right(p, t, s, peak) / 3,
            "That is forward alone: backward takes 4 more, 6 in all.",
        ),
        (
            lambda p, t, s, peak: right(p, t, s, peak) / 1.5,
            "That is backward alone: forward takes 2 more, 6 in all.",
        ),
        (
            lambda p, t, s, peak: right(p, t, s, peak) * 8 / 6,
            "Recomputed operations do not count: the model needs 6.",
        ),
        (
            lambda p, t, s, peak: right(p, t, s, 1),
            "Those are operations a second: divide by `peak`.",
        ),
        (
            lambda p, t, s, peak: right(p, t, 1, peak),
            "`peak` is a second's: divide by the seconds, too.",
        ),
        (
            lambda p, t, s, peak: 1 / right(p, t, s, peak),
            "It is upside down: what is needed over what could be done.",
        ),
        (lambda p, t, s, peak: 100 * right(p, t, s, peak), "That is in percent; a share is due."),
    ]
    compare(function, right, [(2e6, 256, 0.5, 1e10), (7e9, 8192, 2.0, 4e14)], mistakes)
    return "What the model needs, over what the processor could have done meanwhile."


@blank
def held(function):
    """held(psi, hosts, g) -> bytes on a rank at stage 3, with hpZ and with HSDP."""

    def right(psi, hosts, g, copy=2.0):
        stage3 = 16 * psi / (hosts * g)
        return stage3, stage3 + copy * psi / g, 16 * psi / g

    def with_copy(psi, hosts, g, among):
        stage3, _, hsdp = right(psi, hosts, g)
        return stage3, stage3 + 2 * psi / among, hsdp

    mistakes = [
        (
            lambda p, h, g: with_copy(p, h, g, h * g),
            "hpZ deals its copy out inside each host: among g ranks, not among all.",
        ),
        (
            lambda p, h, g: with_copy(p, h, g, 1),
            "hpZ's copy is dealt out, too: among the g ranks of a host.",
        ),
        (
            lambda p, h, g: right(p, h, g, copy=16),
            "hpZ's copy is of the parameters alone, 2 bytes each.",
        ),
        (lambda p, h, g: right(p, h, g, copy=4), "hpZ's copy has 2 bytes a parameter."),
        (
            lambda p, h, g: (right(p, h, g)[0], 2 * p / g, 16 * p / g),
            "hpZ's copy comes on top of what stage 3 holds.",
        ),
        (
            lambda p, h, g: (*right(p, h, g)[:2], 16 * p / (h * g)),
            "HSDP deals out inside a host only: among g ranks.",
        ),
        (
            lambda p, h, g: (*right(p, h, g)[:2], 16 * p / h),
            "HSDP deals out among the ranks of a host, not among the hosts.",
        ),
        (lambda p, h, g: right(p, h, g)[::-1], "Stage 3 first, then hpZ, then HSDP."),
    ]
    compare(function, right, [(40e9, 2, 4), (7e9, 3, 8)], mistakes)
    return "Stage 3 holds least; hpZ pays with a copy, HSDP with all of it for each host."
