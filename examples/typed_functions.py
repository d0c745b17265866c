"""Functions with annotations become models: no tensors are declared, and clients exchange Python values."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from pytriton import DecoupledModelClient, ModelClient, Triton, batch

HTTP = f"http://localhost:{os.environ.get('PYTRITON_TRITON_CONFIG_HTTP_PORT', '8000')}"
GRPC = f"grpc://localhost:{os.environ.get('PYTRITON_TRITON_CONFIG_GRPC_PORT', '8001')}"
GOOD = {"good", "great", "love", "sunny"}


@dataclass
class Sentiment:
    """How a text sounds.

    Args:
        label: In a word.
        score: Share of the words that sound good.
    """

    label: Literal["positive", "neutral"]
    score: float


def sentiment(text: str, threshold: Annotated[float, "Least score of a positive text"] = 0.25) -> Sentiment:
    """Tell how a text sounds."""
    words = text.lower().split()
    score = sum(word in GOOD for word in words) / max(1, len(words))
    return Sentiment("positive" if score >= threshold else "neutral", score)


def tell(prompt: str, max_words: int = 3) -> Iterator[str]:
    for number in range(max_words):
        yield f"{prompt} {number}"


@batch
def brightness(image: np.ndarray) -> dict[str, np.ndarray]:
    return {"mean": image.mean(axis=(1, 2), keepdims=True)[:, 0].astype(np.float32)}


def main() -> None:
    with Triton() as triton:
        triton.bind(sentiment)
        triton.bind("tell", tell)
        triton.bind(brightness, example={"image": np.zeros((1, 4, 4), np.uint8)})  # the output is learned from one call
        with ModelClient(HTTP, "sentiment") as client:
            print(client.call(text="What a sunny day"))
            print(client.call("What a day", 0.5))
        with ModelClient(HTTP, "brightness") as client:
            print(client.call(image=[[0, 255, 0, 255]] * 4))
        with DecoupledModelClient(GRPC, "tell") as client:
            print(list(client.call(prompt="once")))


if __name__ == "__main__":
    main()
