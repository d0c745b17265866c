"""Vectors as OpenAI's API has them."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytriton.client.codec import Arrays
from pytriton.llm.kinds import EMBEDDING, INPUT, TOKENS, VECTOR
from pytriton.llm.requests import EmbeddingRequest
from pytriton.rest.errors import RestError
from pytriton.rest.inference import Question, Served
from pytriton.rest.openai.answers import kinds_of
from pytriton.rest.openai.errors import no_model

__all__ = ["embedded", "read_inputs"]


async def read_inputs(served: Served, request: EmbeddingRequest) -> Question:
    """The rows of a request.

    Raises:
        RestError: The model is no embedding model.
    """
    config = served.model.config
    if EMBEDDING not in kinds_of(config):
        raise no_model(config.model_name, "embeddings")
    inputs = [json.dumps(each, ensure_ascii=False).encode() for each in request.inputs]
    return Question([{INPUT: np.array([[each]], object)} for each in inputs], is_batch=True)


def embedded(request: EmbeddingRequest, rows: Sequence[Arrays]) -> dict[str, Any]:
    """The object with the vectors of all rows.

    Raises:
        RestError: The vectors are shorter than the request asks for.
    """
    data = []
    for index, row in enumerate(rows):
        vector = _cut(row[VECTOR], request.dimensions)
        data.append({"object": "embedding", "index": index, "embedding": _written(vector, request.encoding_format)})
    answer: dict[str, Any] = {"object": "list", "data": data, "model": request.model}
    if rows and TOKENS in rows[0]:
        tokens = int(sum(row[TOKENS][0] for row in rows))
        answer["usage"] = {"prompt_tokens": tokens, "total_tokens": tokens}
    return answer


def _cut(vector: NDArray[Any], dimensions: int | None) -> NDArray[Any]:
    """The first dimensions of a vector, with length 1 as OpenAI's have."""
    if dimensions is None or dimensions == len(vector):
        return vector
    if dimensions > len(vector):
        raise RestError(400, "INVALID_VALUE", f"dimensions is {dimensions}, and the model has {len(vector)}")
    part = vector[:dimensions]
    length = float(np.linalg.norm(part))
    return part / length if length else part


def _written(vector: NDArray[Any], form: str | None) -> Any:
    if form == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return vector.astype(np.float32)
