"""The checks of the blanks in notebook 11c; none needs ranks."""

import itertools

import torch

from pi2zero_course.checks.framework.task import Blank


def _tiles(image, size):
    rows, columns = (range(length // size) for length in image.shape[1:])
    return torch.stack(
        [
            image[:, y * size : (y + 1) * size, x * size : (x + 1) * size]
            for y in rows
            for x in columns
        ]
    )


_IMAGE = torch.arange(3 * 8 * 12.0).reshape(3, 8, 12)

# tiles(image, size) -> (count, 3, size, size), left to right, then down
tiles = Blank(
    name="tiles",
    reference=_tiles,
    cases=[(_IMAGE, 4), (_IMAGE, 2), (_IMAGE[:, :7, :11], 3)],
    mistakes={
        "The first tiles have to be those of the top row, left to right; yours go down first.": (
            lambda image, size: _tiles(image.transpose(1, 2), size).transpose(2, 3)
        ),
        "A tile's pixels come from several tiles: bring the dimensions into order (permute) "
        "before you reshape.": (
            lambda image, size: (
                image.unfold(1, size, size).unfold(2, size, size).reshape(-1, 3, size, size)
            )
        ),
        "Each tile is mirrored: its rows have become columns.": (
            lambda image, size: _tiles(image, size).transpose(2, 3)
        ),
    },
    verified="Every pixel is in one tile; what is left over at the right and below is dropped.",
)


def _images_held(schedule, stages, images, gpipe=None, one_f_one_b=None, gems=1):
    gpipe = images if gpipe is None else gpipe
    one_f_one_b = min(stages, images) if one_f_one_b is None else one_f_one_b
    return {"gpipe": gpipe, "1f1b": one_f_one_b, "gems": gems}.get(schedule, 1)


# images_held(schedule, stages, images) -> how many images' activations the first stage holds at
# most
images_held = Blank(
    name="images_held",
    reference=_images_held,
    cases=[
        (name, *counts)
        for name, counts in itertools.product(
            ("layers", "gpipe", "1f1b", "gems"), ((4, 8), (4, 2), (2, 3))
        )
    ],
    mistakes={
        "There may be fewer images than stages.": (
            lambda name, stages, images: _images_held(name, stages, images, one_f_one_b=stages)
        ),
        "1F1B: the last stage holds one; the first runs ahead, to fill the stages behind it.": (
            lambda name, stages, images: _images_held(name, stages, images, one_f_one_b=1)
        ),
        "Two directions: when the second image comes up, the first one's activations are gone.": (
            lambda name, stages, images: _images_held(name, stages, images, gems=min(2, images))
        ),
        "GPipe begins backward when all images have been forward.": (
            lambda name, stages, images: _images_held(name, stages, images, gpipe=stages)
        ),
    },
    verified="Activations follow from the order alone.",
)

# side_within(limit, held, side, fixed) -> the largest side of an image, an integer
side_within = Blank(
    name="side_within",
    reference=lambda limit, held, side, fixed: int(
        side * ((limit - fixed) / (held - fixed)) ** 0.5
    ),
    cases=[(64e6, 20e6, 512, 1e6), (128e6, 400e6, 1024, 28e6), (1e9, 3e7, 77, 5e6)],
    mistakes={
        "The bytes grow with the area: a square root.": (
            lambda limit, held, side, fixed: int(side * (limit - fixed) / (held - fixed))
        ),
        "What is fixed does not grow: it comes off both.": (
            lambda limit, held, side, fixed: int(side * (limit / held) ** 0.5)
        ),
        "What is fixed comes off what is held, too.": (
            lambda limit, held, side, fixed: int(side * ((limit - fixed) / held) ** 0.5)
        ),
    },
    verified="Twice the side is four times the bytes.",
)
