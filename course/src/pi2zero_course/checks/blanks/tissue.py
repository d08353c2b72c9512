"""The checks of the blanks in notebook 11c; none needs ranks."""

import torch

from pi2zero_course.checks.blanks import blank
from pi2zero_course.checks.blanks.compare import compare


@blank
def tiles(function):
    """tiles(image, size) -> (count, 3, size, size), left to right, then down."""

    def right(image, size):
        rows, columns = (length // size for length in image.shape[1:])
        return torch.stack(
            [
                image[:, y * size : (y + 1) * size, x * size : (x + 1) * size]
                for y in range(rows)
                for x in range(columns)
            ]
        )

    def down_first(image, size):
        return right(image.transpose(1, 2), size).transpose(2, 3)

    mistakes = [
        (
            down_first,
            "The first tiles have to be those of the top row, left to right; yours go down first.",
        ),
        (
            lambda image, size: (
                image.unfold(1, size, size).unfold(2, size, size).reshape(-1, 3, size, size)
            ),
            "A tile's pixels come from several tiles: bring the dimensions into order (permute) before you reshape.",
        ),
        (
            lambda image, size: right(image, size).transpose(2, 3),
            "Each tile is mirrored: its rows have become columns.",
        ),
    ]
    image = torch.arange(3 * 8 * 12.0).reshape(3, 8, 12)
    compare(function, right, [(image, 4), (image, 2), (image[:, :7, :11], 3)], mistakes)
    return "Every pixel is in one tile; what is left over at the right and below is dropped."


@blank
def images_held(function):
    """images_held(schedule, stages, images) -> whose activations the first stage's rank holds at most, a whole number."""

    def right(schedule, stages, images):
        return {"gpipe": images, "1f1b": min(stages, images)}.get(schedule, 1)

    mistakes = [
        (
            lambda schedule, stages, images: {"gpipe": images, "1f1b": stages}.get(schedule, 1),
            "There may be fewer images than stages.",
        ),
        (
            lambda schedule, stages, images: {"gpipe": images, "1f1b": 1}.get(schedule, 1),
            "1F1B: the last stage holds one; the first runs ahead, to fill the stages behind it.",
        ),
        (
            lambda schedule, stages, images: {
                "gpipe": images,
                "1f1b": min(stages, images),
                "gems": min(2, images),
            }.get(schedule, 1),
            "Two directions: when the second image comes up, the first one's activations are gone.",
        ),
        (
            lambda schedule, stages, images: {"gpipe": stages, "1f1b": min(stages, images)}.get(
                schedule, 1
            ),
            "GPipe begins backward when all images have been forward.",
        ),
    ]
    names = ("layers", "gpipe", "1f1b", "gems")
    compare(
        function,
        right,
        [(name, stages, images) for name in names for stages, images in ((4, 8), (4, 2), (2, 3))],
        mistakes,
    )
    return "Activations follow from the order alone."


@blank
def side_within(function):
    """side_within(limit, held, side, fixed) -> the largest side of an image, a whole number."""

    def right(limit, held, side, fixed):
        return int(side * ((limit - fixed) / (held - fixed)) ** 0.5)

    mistakes = [
        (
            lambda limit, held, side, fixed: int(side * (limit - fixed) / (held - fixed)),
            "The bytes grow with the area: a square root.",
        ),
        (
            lambda limit, held, side, fixed: int(side * (limit / held) ** 0.5),
            "What is fixed does not grow: it comes off both.",
        ),
        (
            lambda limit, held, side, fixed: int(side * ((limit - fixed) / held) ** 0.5),
            "What is fixed comes off what is held, too.",
        ),
        (
            lambda limit, held, side, fixed: int(((limit - fixed) / (held - fixed)) ** 0.5),
            "That is how many times as large; times the side.",
        ),
    ]
    compare(
        function,
        right,
        [(64e6, 20e6, 512, 1e6), (128e6, 400e6, 1024, 28e6), (1e9, 3e7, 77, 5e6)],
        mistakes,
    )
    return "Twice the side is four times the bytes."
