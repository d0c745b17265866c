"""What the log says of the app: where it is, and a command that calls one of its models."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from typing import Any

from pytriton.llm.kinds import CHAT, COMPLETION, EMBEDDING, Kind
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.rest.examples import example_of
from pytriton.signature.schema import Signature

__all__ = ["announcement", "example_command"]

MOST_CHARACTERS = 512  # of a body in a command
OPENAI: dict[str, tuple[str, dict[str, Any]]] = {
    CHAT: ("v1/chat/completions", {"messages": [{"role": "user", "content": "text"}]}),
    COMPLETION: ("v1/completions", {"prompt": "text"}),
    EMBEDDING: ("v1/embeddings", {"input": "text"}),
}


def announcement(url: str, configs: Iterable[TritonModelConfig], *, header: str | None) -> str:
    """Where the app is, as lines for the log.

    Args:
        configs: Of the bound models.
        header: With the token that calls need, as the shell writes it; None if they need none.
    """
    typed = sorted(configs, key=lambda config: Signature.of(config) is None)  # functions first, which have examples
    commands = (example_command(url, config, header=header) for config in typed)
    command = next(filter(None, commands), None)
    return f"app at {url}" + (f"\n  Try it:         {command}" if command else "")


def example_command(url: str, config: TritonModelConfig, *, header: str | None) -> str | None:
    """A line for a shell that calls a model once; None without a valid request that fits into a line.

    Args:
        header: As for :func:`announcement`.
    """
    route = f"predict/{config.model_name}"
    kind = Kind.of(config)
    if kind is None:
        example = example_of(Signature.of(config) or Signature.of_tensors(config))
        if example is None:
            return None
        request = example["input"]
    else:
        route, inputs = OPENAI[kind.kind]
        request = {"model": config.model_name, **inputs, **({"stream": True} if config.decoupled else {})}
    body = json.dumps(request, ensure_ascii=False)
    if len(body) > MOST_CHARACTERS:
        return None
    options = " -N" * config.decoupled + (f' -H "{header}"' if header else "")
    return f"curl{options} {url}/{route} -d {shlex.quote(body)}"
