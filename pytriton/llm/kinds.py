"""What a model of this package is, as its configuration tells the app: one parameter, whose text is JSON.

::

    {"version": 1, "kind": "chat", "owned_by": "pytriton", "description": "Answer questions."}

========================  ==================  ==============================================================
kind                      inputs              outputs
========================  ==================  ==============================================================
``chat``, ``completion``  ``request`` BYTES   ``chunks`` BYTES ``(-1,)`` of a decoupled model: each is JSON,
                          ``(1,)``: a body    the members of a choice but its index, or ``{"usage": ...}``
                          of OpenAI's API;
                          ``choice`` INT32
                          ``(1,)``: which one
``embedding``             ``input`` BYTES     ``embedding`` FP32 ``(-1,)``; ``tokens`` INT32 ``(1,)``: how
                          ``(1,)``: JSON, a   many the input has, if the model counts them
                          text or a list of
                          tokens
========================  ==================  ==============================================================
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from pytriton.model_config.triton_model_config import TritonModelConfig

__all__ = ["CHAT", "CHOICE", "CHUNKS", "COMPLETION", "EMBEDDING", "INPUT", "KEY", "REQUEST", "TOKENS", "VECTOR", "Kind"]

KEY = "pytriton.llm"
VERSION = 1
CHAT, COMPLETION, EMBEDDING = "chat", "completion", "embedding"
REQUEST, CHOICE, CHUNKS = "request", "choice", "chunks"
INPUT, VECTOR, TOKENS = "input", "embedding", "tokens"


@dataclass(frozen=True)
class Kind:
    """What a model is.

    Attributes:
        kind: CHAT, COMPLETION or EMBEDDING.
        owned_by: Whom the list of models names.
        description: The first paragraph of the function's docstring.
    """

    kind: str
    owned_by: str = "pytriton"
    description: str = ""

    @classmethod
    def of(cls, config: TritonModelConfig) -> Kind | None:
        """That of a model; None if it is another one, or if a newer version wrote it."""
        try:
            data = json.loads(config.backend_parameters.get(KEY, ""))
            if data["version"] > VERSION or data["kind"] not in (CHAT, COMPLETION, EMBEDDING):
                return None
            return cls(
                data["kind"], str(data.get("owned_by", cls.owned_by)), str(data.get("description", cls.description))
            )
        except (KeyError, RecursionError, TypeError, ValueError):
            return None

    def to_json(self) -> str:
        """The text for the model's configuration."""
        return json.dumps({"version": VERSION, **asdict(self)})
