"""The check of the blank in notebook 11b that needs no ranks."""

from pi2zero_course.checks.blanks import blank
from pi2zero_course.checks.blanks.compare import compare


@blank
def largest_side(function):
    """largest_side(limit, fixed, per_pixel, ranks) -> pixels along a side of the largest square image, a whole number."""

    def right(limit, fixed, per_pixel, ranks):
        return int(((limit - fixed) * ranks / per_pixel) ** 0.5)

    mistakes = [
        (
            lambda limit, fixed, per_pixel, ranks: int((limit * ranks / per_pixel) ** 0.5),
            "What is fixed comes off the limit, on every rank.",
        ),
        (
            lambda limit, fixed, per_pixel, ranks: int((limit - fixed) * ranks / per_pixel),
            "That is the number of pixels; the side is its square root.",
        ),
        (
            lambda limit, fixed, per_pixel, ranks: int(((limit - fixed) / per_pixel) ** 0.5),
            "That is for one rank: each of them holds a part of the image.",
        ),
        (
            lambda limit, fixed, per_pixel, ranks: int(
                ranks * ((limit - fixed) / per_pixel) ** 0.5
            ),
            "It is the area that grows with the ranks, not the side.",
        ),
        (
            lambda limit, fixed, per_pixel, ranks: int(
                ((limit * ranks - fixed) / per_pixel) ** 0.5
            ),
            "The parameters are on every rank, not once.",
        ),
    ]
    compare(
        function,
        right,
        [(64e6, 20_000, 75.0, 4), (1e6, 200_000, 12.5, 1), (1e9, 5e8, 100.0, 9)],
        mistakes,
    )
    return "The area grows with the ranks; what is fixed is on each of them."
