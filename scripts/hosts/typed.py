"""The models of the section ``predict``: typed functions, one for each kind of request to ``/predict``."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field


def texts(text: str, number: float = 0.5) -> str:
    """Text, which the edge reads and writes."""
    return text


def limits(text: Annotated[str, Field(max_length=50)], count: Annotated[int, Field(ge=0, le=10)] = 1) -> int:
    """Values with limits."""
    return count


def choice(side: Literal["left", "right"], number: float) -> str:
    """A value of an enumeration."""
    return side


def data(content: bytes) -> bytes:
    """Bytes, which are base64 in JSON."""
    return content


def record(text: str) -> dict[str, Any]:
    """An object of JSON."""
    return {"label": text, "score": 0.5, "words": [text, text]}


def tell(prompt: str, count: int) -> Iterator[str]:
    """A stream of texts."""
    for _ in range(count):
        yield prompt


TYPED = {each.__name__: each for each in (texts, limits, choice, data, record, tell)}
