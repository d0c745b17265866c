"""The texts of errors, in a form that reaches every client."""

from __future__ import annotations

from bisect import bisect
from itertools import accumulate

__all__ = ["LIMIT_BYTES", "sendable"]

LIMIT_BYTES = 6000
"""gRPC sends a message as metadata, percent-encoded, of which clients take 8 KiB in all and refuse the answer else."""


def sendable(text: str) -> str:
    """A text that gRPC can send: without lone surrogates and NULs; of a long one, the beginning and the end.

    Args:
        text: Of any length and content.

    Returns:
        A text whose percent-encoded form is little longer than LIMIT_BYTES.
    """
    text = text.encode(errors="replace").decode().replace("\0", "\\0")
    if sum(map(_encoded_bytes, text[: LIMIT_BYTES + 1])) <= LIMIT_BYTES:
        return text
    begin, end = _fitting(text[:LIMIT_BYTES]), _fitting(text[: -LIMIT_BYTES - 1 : -1])
    return f"{text[:begin]} [...] {text[len(text) - end :]}"


def _fitting(text: str) -> int:
    """Number of characters that take half of the limit."""
    return bisect(list(accumulate(map(_encoded_bytes, text))), LIMIT_BYTES // 2)


def _encoded_bytes(character: str) -> int:
    return 1 if " " <= character <= "~" and character != "%" else 3 * len(character.encode())
