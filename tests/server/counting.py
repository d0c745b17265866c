"""Requests to decoupled models that count, and all that comes back."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytriton.client import AsyncioDecoupledModelClient


def of(count: float, rows: int = 1) -> NDArray[np.float32]:
    """An input, of shape ``(rows, 2)``, that asks for so many responses."""
    return np.full((rows, 2), count, np.float32)


def collect(url: str, model: str, x: NDArray[np.float32], **options: Any) -> list[NDArray[np.float32]]:
    """The output ``y`` of all responses that the asynchronous client gets; options are those of the client."""

    async def run() -> list[NDArray[np.float32]]:
        async with AsyncioDecoupledModelClient(url, model, **options) as client:
            return [response["y"] async for response in client.infer_batch(x)]

    return asyncio.run(run())
