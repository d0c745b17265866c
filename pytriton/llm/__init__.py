"""Language and embedding models, which the app serves with OpenAI's API.

::

    from pytriton.llm import ChatModel

    def answer(request: ChatRequest) -> Iterator[str]:
        yield from ("Hello", " ", "world")

    triton.bind("llm", ChatModel(answer))

============= ================================================================================================
``models``    ``ChatModel``, ``CompletionModel``, ``EmbeddingModel``: functions as models
``requests``  what these functions get, and what the routes of the app check
``chunks``    what these functions yield
``writing``   chunks as JSON, one or several for each response of the model
``stops``     where a text ends because of a stop sequence, and texts that are split within a character
``templates`` chat templates
``kinds``     the parameter of a model's configuration that tells the app what it is
============= ================================================================================================

pydantic and jinja2 come with the extra ``llm``: ``pip install 'pytriton[llm]'``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytriton.llm.chunks import Finish, Token, ToolCall, Usage
    from pytriton.llm.models import ChatModel, CompletionModel, EmbeddingModel
    from pytriton.llm.requests import ChatRequest, CompletionRequest

__all__ = [
    "ChatModel",
    "ChatRequest",
    "CompletionModel",
    "CompletionRequest",
    "EmbeddingModel",
    "Finish",
    "Token",
    "ToolCall",
    "Usage",
]

_HOMES = {
    "chunks": "Finish Token ToolCall Usage",
    "models": "ChatModel CompletionModel EmbeddingModel",
    "requests": "ChatRequest CompletionRequest",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "pydantic":
            raise
        raise ImportError("pytriton.llm needs pydantic; install it with: pip install 'pytriton[llm]'") from error
