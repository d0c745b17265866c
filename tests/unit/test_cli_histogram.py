"""The picture of a load test."""

import warnings
from array import array

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the libraries that matplotlib imports
    matplotlib_image = pytest.importorskip("matplotlib.image")

from pytriton.cli.histogram import DPI, INCHES, Canvas

SIZE = (INCHES[1] * DPI, INCHES[0] * DPI)


@pytest.mark.parametrize(
    "latencies", [[0.001], [0.002] * 5, [0.001, 0.0011, 0.0012], [0.0001, 0.01, 1.5], np.geomspace(1e-4, 1, 1000)]
)
def test_a_picture_of_any_latencies_is_a_png_of_full_size(latencies, tmp_path):
    path = tmp_path / "latencies"
    Canvas().draw(array("d", latencies), "m at localhost", path)
    assert path.read_bytes().startswith(b"\x89PNG")
    picture = matplotlib_image.imread(path, format="png")
    assert picture.shape[:2] == SIZE
    assert _bars(picture) > 100


def _bars(picture):
    """How many pixels have the colour of the bars, or one between it and white."""
    red, _, blue = (picture[..., channel] for channel in range(3))
    return int(((blue - red) > 0.3).sum())
