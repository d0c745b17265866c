"""Functions that splits and shadows stand for, and requests to them as JSON."""

from __future__ import annotations

import json
from typing import Any
from urllib.request import urlopen

from tests.server.processes import DEADLINE_S


def one(word: str) -> str:
    return f"{word} 1"


def two(word: str) -> str:
    return f"{word} 2"


def three(word: str) -> str:
    return f"{word} 3"


WORD = [{"name": "word", "datatype": "BYTES", "shape": [1, 1], "data": ["a"]}]


def get(url: str) -> Any:
    with urlopen(url, timeout=DEADLINE_S) as response:
        return json.load(response)


def post(url: str, body: Any) -> Any:
    with urlopen(url, json.dumps(body).encode(), DEADLINE_S) as response:
        return json.load(response)


def calls(url: str, model: str) -> int:
    """How many requests the callable of a model has answered."""
    return int(get(f"{url}/v2/models/{model}/stats")["model_stats"][0]["inference_stats"]["success"]["count"])
