"""JSON in, and a stream of answers out: a dataclass and a generator behind the app.

It needs the extra `rest`. The same calls with curl:

    curl localhost:8080/predict/sentiment -d '{"text": "What a sunny day"}'
    curl -N localhost:8080/predict/tell -d '{"prompt": "Once"}' -H 'Accept: text/event-stream'
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import httpx

from pytriton import Triton
from pytriton.rest import RestConfig

PORT = int(os.environ.get("PORT", "8080"))
GOOD = {"good", "great", "love", "sunny"}


@dataclass
class Sentiment:
    """How a text sounds."""

    label: Literal["positive", "neutral"]
    score: float


def sentiment(text: str, threshold: float = 0.25) -> Sentiment:
    """Tell how a text sounds."""
    words = text.lower().split()
    score = sum(word in GOOD for word in words) / max(1, len(words))
    return Sentiment("positive" if score >= threshold else "neutral", score)


def tell(prompt: str, max_words: int = 3) -> Iterator[str]:
    """Continue a story, word by word."""
    for number in range(max_words):
        yield f"{prompt} {number}"


def main() -> None:
    with Triton(rest=RestConfig(port=PORT)) as triton:
        triton.bind(sentiment)
        triton.bind(tell)
        with httpx.Client(base_url=f"http://localhost:{PORT}/predict/") as client:
            print(client.post("sentiment", json={"text": "What a sunny day"}).json())
            print(client.post("sentiment", json={"instances": [{"text": "great"}, {"text": "no"}]}).json())
            print(client.post("sentiment", json={"text": 3, "threshold": "high"}).json()["error"]["message"])
            with client.stream("POST", "tell", json={"prompt": "Once"}) as answer:
                for line in answer.iter_lines():
                    print(line)
            events = {"Accept": "text/event-stream"}
            print(client.post("tell", json={"prompt": "Once", "max_words": 1}, headers=events).text.strip())


if __name__ == "__main__":
    main()
