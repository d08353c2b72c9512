"""The check of the blank in notebook 11b that needs no ranks."""

from pi2zero_course.checks.framework.task import Blank

# largest_side(limit, fixed, per_pixel, ranks) -> pixels along a side of the largest square image,
# an integer
largest_side = Blank(
    name="largest_side",
    reference=lambda limit, fixed, each, ranks: int(((limit - fixed) * ranks / each) ** 0.5),
    cases=[(64e6, 20_000, 75.0, 4), (1e6, 200_000, 12.5, 1), (1e9, 5e8, 100.0, 9)],
    mistakes={
        "What is fixed comes off the limit, on every rank.": (
            lambda limit, fixed, each, ranks: int((limit * ranks / each) ** 0.5)
        ),
        "That is the number of pixels; the side is its square root.": (
            lambda limit, fixed, each, ranks: int((limit - fixed) * ranks / each)
        ),
        "That is for one rank: each of them holds a part of the image.": (
            lambda limit, fixed, each, ranks: int(((limit - fixed) / each) ** 0.5)
        ),
        "It is the area that grows with the ranks, not the side.": (
            lambda limit, fixed, each, ranks: int(ranks * ((limit - fixed) / each) ** 0.5)
        ),
    },
    verified="The area grows with the ranks; what is fixed is on each of them.",
)
