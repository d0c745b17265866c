"""Makes the pictures of the pages for the documentation: ``python scripts/screenshots.py FOLDER``.

Serves some models, calls them, and photographs each page with Chromium, light and dark, 390 and 1440 pixels wide.
"""

from __future__ import annotations

import io
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import httpx
import numpy as np
from PIL import Image, ImageFilter
from playwright.sync_api import Page, sync_playwright
from pydantic import Field
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from pytriton import DynamicBatcher, ModelConfig, Triton, TritonConfig, batch
from pytriton.rest import RestConfig
from pytriton.triton import TritonBase, TritonSecurityConfig
from pytriton.workers import Processes

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PORT, TOKEN = 21180, "secret"
WIDTHS = {390: 844, 1440: 900}
LOAD_S = 12.0


@dataclass
class Sentiment:
    label: str
    labels: list[str]
    scores: list[float]


def sentiment(
    text: Annotated[str, Field(description="What somebody wrote.")],
    language: Literal["English", "German", "French"] = "English",
    threshold: Annotated[float, Field(ge=0, le=1, description="Below it, a text is neutral.")] = 0.5,
    shouting: bool = False,
) -> Sentiment:
    """Tell how a text sounds."""
    good = sum(text.lower().count(word) for word in ("good", "lovely", "what a day", "schön", "bon"))
    share = min(0.95, 0.35 + 0.3 * good + 0.1 * shouting)
    scores = [share, (1 - share) * 0.7, (1 - share) * 0.3]
    return Sentiment("good" if share > threshold else "neutral", ["good", "neutral", "bad"], scores)


def tell(prompt: str, words: Annotated[int, Field(ge=1, le=60)] = 24) -> Iterator[str]:
    """Tell a story, word by word."""
    story = (
        "there was a server that answered every request within a millisecond and nobody had to wait any more".split()
    )
    yield prompt
    for number in range(words):
        time.sleep(0.03)
        yield f" {story[number % len(story)]}"


def blur(image: Image.Image, radius: Annotated[float, Field(ge=0, le=20)] = 4.0) -> Image.Image:
    """Blur a picture."""
    return image.convert("RGB").filter(ImageFilter.GaussianBlur(radius))


def bind_models(triton: TritonBase) -> None:
    """Bind a model of each kind."""
    digits = load_digits()
    trained = LogisticRegression(max_iter=200).fit(digits.data, digits.target)

    @batch
    def digit(image: np.ndarray) -> dict[str, np.ndarray]:
        """Which digit an image of 8 by 8 pixels shows."""
        time.sleep(0.002 + 0.0004 * len(image))
        scores = trained.predict_proba(image.reshape(len(image), 64))
        return {"digit": scores.argmax(1).reshape(-1, 1), "scores": scores.astype(np.float32)}

    batching = ModelConfig(max_batch_size=32, batcher=DynamicBatcher(max_queue_delay_microseconds=4000))
    triton.bind("digit", digit, config=batching, example={"image": digits.images[:1].astype(np.float32)})
    triton.bind(sentiment, example={"text": "What a day", "language": "English"})
    triton.bind(tell)
    triton.bind(blur)
    triton.bind("add", Processes(make_add, count=2))


def make_add() -> Any:
    """Make the function in a worker process."""

    def add(a: list[float], b: list[float]) -> list[float]:
        """Add two vectors."""
        return [x + y for x, y in zip(a, b, strict=True)]

    return add
