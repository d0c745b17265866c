"""Whether this machine has a GPU."""

from __future__ import annotations

import ctypes

import pytest


def _has_gpu() -> bool:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int()
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


HAS_GPU = _has_gpu()
with_gpu = pytest.mark.skipif(not HAS_GPU, reason="there is no GPU here")
without_gpu = pytest.mark.skipif(HAS_GPU, reason="there is a GPU here")
