"""Handwritten digits over HTTP: an image file is uploaded, and the answer is JSON.

It needs the extra `rest`, scikit-learn and pillow. It trains a classifier, serves it, and calls it as `curl` would:

    curl -F image=@digit.png localhost:8080/predict/digit

`http://localhost:8080/docs` has a form for the upload.
"""

import io
import os
from dataclasses import dataclass

import httpx
import numpy as np
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.svm import SVC

from pytriton import Triton
from pytriton.rest import RestConfig

PORT = int(os.environ.get("PORT", "8080"))

images, digits = load_digits(return_X_y=True)
classifier = SVC(gamma=0.001).fit(images[:1500], digits[:1500])


@dataclass
class Digit:
    """What an image shows.

    Args:
        digit: From 0 to 9.
    """

    digit: int


def digit(image: Image.Image) -> Digit:
    """Tell which digit an image shows.

    Args:
        image: Of any size, white on black.
    """
    pixels = np.asarray(image.convert("L").resize((8, 8)), np.float64) / 255 * 16
    return Digit(int(classifier.predict(pixels.reshape(1, 64))[0]))


def drawn(number: int) -> bytes:
    """An image of the test set as a PNG file."""
    file = io.BytesIO()
    Image.fromarray((images[number].reshape(8, 8) / 16 * 255).astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


def main() -> None:
    with Triton(rest=RestConfig(port=PORT)) as triton:
        triton.bind(digit)
        url = f"http://localhost:{PORT}/predict/digit"
        for number in range(1500, 1503):
            answer = httpx.post(url, files={"image": ("digit.png", drawn(number), "image/png")})
            print(f"it is a {digits[number]}: {answer.text}")
        print(httpx.post(url, json={"picture": "..."}).text)


if __name__ == "__main__":
    main()
