"""One model of each kind, as the routes of the app see them."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal

import numpy as np
from PIL import Image
from pydantic import BaseModel, Field

from pytriton.base import TritonBase
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor


class Tone(Enum):
    GOOD = "good"
    BAD = "bad"


@dataclass
class Sentiment:
    label: Tone
    score: float
    words: list[str]


class Order(BaseModel):
    item: str
    count: int = Field(1, ge=1)
    tags: dict[str, int] = {}


def scalars(
    text: str,
    number: float = 0.5,
    count: Annotated[int, Field(ge=0, le=10)] = 1,
    tone: Tone | None = None,
    side: Literal["left", "right"] = "left",
    flag: bool = False,
) -> Sentiment:
    """How a text sounds."""
    return Sentiment(tone or Tone.GOOD, number * count, [side, str(flag), *text.split()])


def records(order: Order, others: list[Order] | None = None) -> dict[str, Any]:
    """What is ordered."""
    everything = [order, *(others or [])]
    return {"items": [each.item for each in everything], "first": order.model_dump()}


def lists(words: list[str], numbers: list[int]) -> list[str]:
    return [*words, *map(str, numbers)]


def data(content: bytes) -> bytes:
    return content[::-1]


def picture(image: Image.Image) -> tuple[int, int]:
    return image.size


def tell(prompt: str, words: Annotated[int, Field(ge=0, le=5)] = 3) -> Iterator[str]:
    """A stream."""
    for number in range(words):
        yield f"{prompt} {number}"


@batch
def doubled(x: np.ndarray) -> dict[str, np.ndarray]:
    with np.errstate(over="ignore"):
        return {"y": x + x}


@batch
def same(**arrays):
    return arrays


def make_add() -> Any:
    """Make the function of a worker process."""

    def add(a: int, b: int) -> int:
        return a + b

    return add


DTYPES = {
    "FP32": np.float32,
    "FP16": np.float16,
    "INT8": np.int8,
    "UINT64": np.uint64,
    "BOOL": np.bool_,
    "BYTES": bytes,
}


def bind_doubled(triton: TritonBase) -> None:
    """Bind the model whose tensors come from examples: one float32 row of any length."""
    triton.bind(doubled, example=[{"x": np.ones((1, 2), np.float32)}, {"x": np.ones((1, 3), np.float32)}])


def bind_kinds(triton: TritonBase) -> None:
    """Bind them all."""
    for function in (scalars, records, lists, data, picture, tell):
        triton.bind(function)
    bind_doubled(triton)
    tensors = [Tensor(name=name, shape=(-1,), dtype=dtype) for name, dtype in DTYPES.items()]
    triton.bind("declared", same, tensors, tensors, config=ModelConfig(max_batch_size=8))


KINDS = ("scalars", "records", "lists", "data", "picture", "tell", "doubled", "declared")
