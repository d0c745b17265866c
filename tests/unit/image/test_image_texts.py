"""The Dockerfile has what the distributions of an image need of Debian."""

import pytest

from pytriton.image.texts import texts_of


@pytest.mark.parametrize(
    ("distribution", "is_compiled", "has_openmp"),
    [("numpy", False, False), ("lightgbm", False, True), ("llama-cpp-python", True, True)],
)
def test_a_compiler_and_openmp_are_there_for_the_distributions_that_need_them(distribution, is_compiled, has_openmp):
    command = ["pytriton", "serve", "model"]
    text = texts_of(command, "models:1", "pytriton.whl", {"numpy", distribution}, is_vendored=False)["Dockerfile"]
    first, last = (line.split()[1] for line in text.splitlines() if line.startswith("FROM "))
    assert last.startswith("python:3.")
    assert "-slim-" in last
    assert first == (last.replace("-slim", "") if is_compiled else last)
    assert ("install --yes --no-install-recommends libgomp1 " in text.partition(f"\nFROM {last}\n")[2]) == has_openmp
