"""What the functions of chat and completion models yield, beside text.

=================  ================================================================================================
``str``            text
``bytes``          text in UTF-8, which may be cut within a character
:class:`Token`     text with its log probability
:class:`ToolCall`  a call of a tool, or a part of its arguments
``dict``           the members of a message, or of a delta, as OpenAI's API has them: ``content``, ``tool_calls`` ...
:class:`Usage`     how many tokens there were
:class:`Finish`    why the answer ends
=================  ================================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Chunk", "Finish", "Token", "ToolCall", "Usage"]


@dataclass(frozen=True)
class Token:
    """Text of one token.

    Attributes:
        text: Of the token; bytes may be cut within a character.
        logprob: Its natural logarithm of a probability. Clients get it if they ask for it.
        top: The most likely tokens in its place, with theirs.
    """

    text: str | bytes
    logprob: float = 0.0
    top: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool, or the next part of one.

    Attributes:
        name: Of the tool; empty continues the last call.
        arguments: JSON, or a part of it; or an object that becomes JSON.
        id: Of the call; one is made if it is empty.
    """

    name: str = ""
    arguments: str | Mapping[str, Any] = ""
    id: str = ""


@dataclass(frozen=True)
class Usage:
    """How many tokens a request and its answer have. The last one that is yielded counts.

    Attributes:
        prompt_tokens_details: Such as ``{"cached_tokens": 3}``.
        completion_tokens_details: Such as ``{"reasoning_tokens": 7}``.
    """

    prompt_tokens: int
    completion_tokens: int
    prompt_tokens_details: Mapping[str, int] | None = None
    completion_tokens_details: Mapping[str, int] | None = None


@dataclass(frozen=True)
class Finish:
    """The end of an answer.

    Attributes:
        reason: ``"stop"``, ``"length"``, ``"content_filter"`` or ``"tool_calls"``.
    """

    reason: str


Chunk = str | bytes | Token | ToolCall | Usage | Finish | Mapping[str, Any]
