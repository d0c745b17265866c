"""Read the digits in a picture: one model finds them, another one classifies each, a third calls both and draws.

It needs scikit-learn and Pillow. The calls for all digits of all pictures that are read at the same time are merged, so
that the classifier works on many at once. `image_pipeline.py read.png` keeps the last drawn picture.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from pytriton import ModelClient, ModelConfig, ModelHandle, Triton, batch

URL = f"http://localhost:{os.environ.get('PYTRITON_TRITON_CONFIG_HTTP_PORT', '8000')}"
SIDE = 8  # of the pictures that the classifier has learned
SCALE = 6
GAP = 3  # columns without ink between two digits, at least


def centred(image: np.ndarray) -> np.ndarray:
    """A picture of a digit with as many empty columns on the left as on the right."""
    inked = np.flatnonzero(image.max(axis=0))
    return np.roll(image, (SIDE - inked[0] - inked[-1]) // 2, axis=1)


digits = load_digits()
learned = np.array([centred(image) for image in digits.images[:1500]]).reshape(1500, -1)
classifier = KNeighborsClassifier().fit(learned, digits.target[:1500])


@dataclass
class Box:
    """Where a digit is, in columns of the picture: the first one, and that behind the last one."""

    left: int
    right: int


@dataclass
class Reading:
    """What a picture says.

    Args:
        digits: From left to right.
        picture: The same with a frame and the digit at each place.
    """

    digits: list[int]
    picture: Image.Image


def find(picture: Image.Image) -> list[Box]:
    """Find the digits, which stand in a row, white on black."""
    inked = np.flatnonzero(np.asarray(picture.convert("L")).max(axis=0))
    breaks = np.flatnonzero(np.diff(inked) > GAP * SCALE)
    starts, ends = inked[[0, *(breaks + 1)]], inked[[*breaks, -1]] + 1
    return [Box(int(start), int(end)) for start, end in zip(starts, ends, strict=True)]


@batch
def classify(digit: list[Image.Image]) -> list[int]:
    """Classify pictures of one digit each."""
    small = [np.asarray(each.convert("L").resize((SIDE, SIDE), Image.Resampling.BOX)) / 16 for each in digit]
    return classifier.predict(np.reshape(small, (len(small), -1))).tolist()


def read(picture: Image.Image, find: ModelHandle, classify: ModelHandle) -> Reading:
    """Read the digits in a picture."""
    side = SIDE * SCALE
    boxes = find(picture)
    lefts = [(box["left"] + box["right"] - side) // 2 for box in boxes]  # a digit may be narrower than its place
    found = classify.map([picture.crop((left, 0, left + side, side)) for left in lefts])
    drawn = Image.new("RGB", (picture.width, side + 16))
    drawn.paste(picture)
    draw = ImageDraw.Draw(drawn)
    for left, digit in zip(lefts, found, strict=True):
        draw.rectangle((left, 0, left + side - 1, side - 1), outline="orange")
        draw.text((left + side // 2, side + 2), str(digit), fill="orange")
    return Reading(found, drawn)


def picture_of(indices: list[int]) -> Image.Image:
    """A row of digits that the classifier has not seen."""
    gap = np.zeros((SIDE, GAP + 2))
    row = np.hstack([part for index in indices for part in (gap, digits.images[index])] + [gap])
    pixels = Image.fromarray((row * 15).astype(np.uint8))
    return pixels.resize((pixels.width * SCALE, SIDE * SCALE), Image.Resampling.NEAREST)


def main() -> None:
    with Triton() as triton:
        for function in (find, classify, read):
            triton.bind(function, config=ModelConfig(max_batch_size=64))
        with ModelClient(URL, "read") as client:
            for indices in ([1500, 1512, 1533], [*range(1612, 1620)]):
                reading = client.call(picture=picture_of(indices))
                print(f"it says {digits.target[indices].tolist()}, read as {reading['digits']}")
        for name in sys.argv[1:]:
            Path(name).write_bytes(reading["picture"])


if __name__ == "__main__":
    main()
