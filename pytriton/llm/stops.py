"""Text that comes in pieces: pieces that are cut within a character, and stop sequences that lie across pieces."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

__all__ = ["StopSequences", "TextDecoder"]


class TextDecoder:
    """Joins characters that are cut across pieces: bytes of UTF-8, and surrogates of UTF-16."""

    def __init__(self) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._high = ""

    def decode(self, piece: str | bytes) -> str:
        """The text of a piece, without a character that is not complete yet."""
        if isinstance(piece, bytes):
            return self._utf8.decode(piece)
        if not self._high and piece.isascii():
            return piece
        text = self._high + piece
        self._high = ""
        if "\ud800" <= text[-1:] <= "\udbff":
            text, self._high = text[:-1], text[-1]
        return _without_surrogates(text)

    def end(self) -> str:
        """What is left, with U+FFFD in place of what is no character."""
        return self._utf8.decode(b"", final=True) + ("\ufffd" if self._high else "")


def _without_surrogates(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


class StopSequences:
    """Ends a text before the stop sequence that is complete first, wherever the text is cut into pieces.

    Args:
        sequences: None of them empty.

    Attributes:
        found: Whether there was one.
    """

    def __init__(self, sequences: Sequence[str]) -> None:
        self.found = False
        self._sequences = sequences
        self._held = ""

    def cut(self, piece: str) -> str:
        """What can be sent after a piece: all but the beginning of what may become a stop sequence."""
        if self.found:
            return ""
        text = self._held + piece
        places = ((text.find(each), len(each)) for each in self._sequences)
        found = [(start + length, start) for start, length in places if start >= 0]
        if found:
            self.found = True
            self._held = ""
            _, start = min(found)
            return text[:start]
        held = max(_overlap(text, each) for each in self._sequences)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def end(self) -> str:
        """What was held back."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, sequence: str) -> int:
    """The length of the longest end of a text that begins a sequence."""
    for length in range(min(len(text), len(sequence) - 1), 0, -1):
        if text.endswith(sequence[:length]):
            return length
    return 0
