"""Makes the pictures of the pages in docs/images: ``python scripts/screenshots.py [FOLDER]``.

Serves some models, calls them, and photographs each page with Chromium: with FOLDER, light and dark, 390 and 1440 px
wide; without it, those of the documentation. Needs the extra ``test``.
"""

from __future__ import annotations

import io
import random
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import httpx
import numpy as np
from PIL import Image, ImageFilter
from playwright.sync_api import Page, sync_playwright
from pydantic import Field
from sklearn.datasets import load_digits

from pytriton import DynamicBatcher, ModelConfig, Pipeline, Step, Triton, batch
from pytriton.llm import ChatModel, ChatRequest
from pytriton.rest import RestConfig
from pytriton.triton import DEFAULT_PROTECTED_ENDPOINTS, TritonBase, TritonConfig, TritonSecurityConfig
from pytriton.workers import Processes

IMAGES = Path(__file__).parents[1] / "docs" / "images"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HOST, PORTS, TOKEN = "127.0.0.1", (26510, 26511, 26512, 26513), "secret"
URL = f"http://{HOST}:{PORTS[3]}"
PAGES = ("", "try", "try/digit", "try/sentiment", "try/tell", "chat/guide", "batches/digit", "workers")
QUESTION = "When does a server merge requests?"
HEIGHTS = {390: 844, 1440: 900}
IN_DOCS = {  # page: (file, width, colours)
    "": ("overview", 1440, "light"),
    "try/digit": ("try-it", 1440, "light"),
    "chat/guide": ("chat", 1440, "light"),
    "batches/digit": ("batches", 1440, "dark"),
    "workers": ("workers", 1440, "light"),
}
LOAD_S, CALLERS = 75.0, 6
QUALITY = 55


@dataclass
class Sentiment:
    """How a text sounds."""

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
    good = sum(text.lower().count(word) for word in ("good", "lovely", "what a day"))
    share = min(0.95, 0.35 + 0.3 * good + 0.1 * shouting)
    scores = [share, (1 - share) * 0.7, (1 - share) * 0.3]
    return Sentiment("good" if share > threshold else "neutral", ["good", "neutral", "bad"], scores)


def tell(prompt: str, words: Annotated[int, Field(ge=1, le=60)] = 24) -> Iterator[str]:
    """Tell a story, word by word."""
    story = ("there", "was", "a", "server", "that", "answered", "every", "request", "in", "time")
    yield prompt
    for number in range(words):
        time.sleep(0.03)
        yield f" {story[number % len(story)]}"


def guide(request: ChatRequest) -> Iterator[str]:
    """Answer questions about batches."""
    answer = (
        "When several arrive within the queue's delay: the server then calls the function once, with all of their rows."
    )
    for word in answer.split():
        time.sleep(0.02)
        yield f"{word} "


def blur(image: Image.Image, radius: Annotated[float, Field(ge=0, le=20)] = 4.0) -> Image.Image:
    """Blur a picture."""
    return image.convert("RGB").filter(ImageFilter.GaussianBlur(radius))


def clean(text: str) -> str:
    """Remove what is no word."""
    return " ".join(re.findall(r"[\w']+", text))


def words(text: str) -> list[str]:
    """The words of a text."""
    return text.lower().split()


def mood(words: list[str], text: str) -> str:
    """Whether a text sounds good."""
    time.sleep(0.002)
    return "good" if "good" in words else f"neutral, in {len(text)} letters"


def make_add() -> Any:
    """Make the function of a worker process."""

    def add(a: list[float], b: list[float]) -> list[float]:
        """Add two vectors."""
        return [x + y for x, y in zip(a, b, strict=True)]

    return add


def bind_models(triton: TritonBase) -> None:
    """Bind a model of each kind."""
    digits = load_digits()

    @batch
    def digit(image: np.ndarray) -> dict[str, np.ndarray]:
        """Which digit an image of 8 by 8 pixels shows."""
        time.sleep(0.004)
        distances = ((image.reshape(-1, 1, 64) - digits.data) ** 2).sum(2)
        nearest = digits.target[distances.argsort(1)[:, :20]]
        scores = (nearest[:, :, None] == np.arange(10)).mean(1, dtype=np.float32)
        return {"digit": scores.argmax(1).reshape(-1, 1), "scores": scores}

    batching = ModelConfig(max_batch_size=32, batcher=DynamicBatcher(max_queue_delay_microseconds=4000))
    triton.bind("digit", digit, config=batching, example={"image": digits.images[5:6].astype(np.float32)})
    triton.bind(sentiment, example={"text": "What a day", "language": "English"})
    triton.bind(tell)
    triton.bind(blur)
    triton.bind(ChatModel(guide))
    triton.bind("add", Processes(make_add, count=2))
    for function in (clean, words, mood):
        triton.bind(function)
    first = Step("clean", {"text": "review"}, {"result": "cleaned"})
    then = (
        Step("words", {"text": "cleaned"}, {"result": "words"}),
        Step("mood", {"text": "cleaned"}, {"result": "mood"}),
    )
    triton.bind("review", Pipeline(first, *then))


def call_models(stop: threading.Event) -> None:
    """Call two of them until the end."""
    image = load_digits().images[0].tolist()
    with httpx.Client(base_url=URL, trust_env=False) as client:
        while not stop.is_set():
            with suppress(httpx.HTTPError):
                client.post("/predict/digit", json={"image": image})
                if random.random() < 0.4:
                    client.post("/predict/sentiment", json={"text": "What a day"})
                if random.random() < 0.2:
                    client.post("/predict/review", json={"review": "All good!"})
            time.sleep(random.expovariate(60))


def photograph(page: Page, path: str, width: int, colors: Any) -> Image.Image:
    """A picture of a page, once it shows something."""
    page.emulate_media(color_scheme=colors)
    page.set_viewport_size({"width": width, "height": HEIGHTS[width]})
    page.goto(f"{URL}/#/{path}")
    page.reload()
    page.locator("#state.good").wait_for()
    if path.startswith("try/"):
        page.get_by_role("button", name="Run").click()
        page.locator("p.told", has_text="in ").first.wait_for()
    if path.startswith("chat/"):
        page.get_by_placeholder("Message").fill(QUESTION)
        page.get_by_role("button", name="Send").click()
        page.locator("p.told", has_text="First token").first.wait_for()
    if path == "workers":
        page.locator("#token").click()
        page.locator("#token-field").fill(TOKEN)
        page.get_by_role("button", name="Use").click()
    page.wait_for_timeout(4000)
    return Image.open(io.BytesIO(page.screenshot(full_page=True)))


def photograph_pipelines(page: Page) -> Image.Image:
    """A picture of the graphs on the overview, in the width and the colours of the last picture."""
    page.goto(f"{URL}/#/")
    page.locator("figure[data-pipeline]").first.wait_for()
    page.wait_for_timeout(2000)
    return Image.open(io.BytesIO(page.locator("section", has=page.locator("figure[data-pipeline]")).screenshot()))


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    (folder or IMAGES).mkdir(parents=True, exist_ok=True)
    config = TritonConfig(http_port=PORTS[0], grpc_port=PORTS[1], metrics_port=PORTS[2], http_address=HOST)
    closed = [each for each in DEFAULT_PROTECTED_ENDPOINTS if each != "statistics"]  # the figures are for all
    security, rest = TritonSecurityConfig(TOKEN, closed), RestConfig(port=PORTS[3], address=HOST)
    stop = threading.Event()
    callers = [threading.Thread(target=call_models, args=(stop,)) for _ in range(CALLERS)]
    with Triton(config=config, security_config=security, rest=rest) as triton, sync_playwright() as playwright:
        bind_models(triton)
        triton.run()
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(URL)  # a page that is open has the app take a sample each second
        for caller in callers:
            caller.start()
        try:
            page.wait_for_timeout(5000 if folder else LOAD_S * 1000)
            if folder is not None:
                for path in PAGES:
                    for width in HEIGHTS:
                        for colors in ("light", "dark"):
                            name = f"{path.replace('/', '-') or 'overview'}-{width}-{colors}.png"
                            photograph(page, path, width, colors).save(folder / name)
            else:
                for path, (name, width, colors) in IN_DOCS.items():
                    picture = photograph(page, path, width, colors)
                    picture.convert("RGB").save(IMAGES / f"{name}.webp", quality=QUALITY, method=6)
                picture = photograph_pipelines(page)
                picture.convert("RGB").save(IMAGES / "pipelines.webp", quality=QUALITY, method=6)
        finally:
            stop.set()
        browser.close()


if __name__ == "__main__":
    main()
