"""What a JSON text costs as Python's objects, told from its bytes before it is parsed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["JsonSize", "size_of"]

# Of a list or object with its place in another one, of a value with its place, and of a name with its entry: the most
# that CPython takes for each, found with sys.getsizeof.
CONTAINER_BYTES, VALUE_BYTES, NAME_BYTES = 88, 72, 120
WIDEST_CHARACTER = 4  # bytes of each character of a text that has one outside of Unicode's first plane

# Of a number or a name in simdjson's index and tape, with the number in two arrays; of a list with the object of it.
READ_BYTES, LIST_BYTES = 40, 130

BLOCK_BYTES = 2**20
QUOTE, COMMA, COLON, BACKSLASH, OPENING = (ord(each) for each in '",:\\{')
LOWER = np.uint8(0x20)  # "{" and "[" differ by this bit alone


class JsonSize(NamedTuple):
    """How much a JSON text holds.

    Attributes:
        containers: Lists and objects.
        values: Values in them, counted by commas, and the lists and objects themselves.
        names: Of members.
        text_bytes: Of its strings, at most, as Python's.
    """

    containers: int
    values: int
    names: int
    text_bytes: int

    @property
    def tree_bytes(self) -> int:
        """The most memory that it takes as Python's objects."""
        commas = self.values - self.containers
        return self.containers * CONTAINER_BYTES + commas * VALUE_BYTES + self.names * NAME_BYTES + self.text_bytes

    @property
    def read_bytes(self) -> int:
        """The most memory that simdjson's index of it and arrays of its numbers take."""
        return self.values * READ_BYTES + self.containers * LIST_BYTES + self.names * READ_BYTES + 2 * self.text_bytes


def size_of(text: bytes) -> JsonSize:
    """The size of a JSON text, which need not be valid. It takes some megabytes, and about 2 ns for each byte."""
    containers = commas = colons = start = 0
    is_inside = np.uint8(0)  # a string
    while start < len(text):
        end = min(start + BLOCK_BYTES, len(text))
        while end < len(text) and text[end - 1] == BACKSLASH:  # which belongs to the next character
            end += 1
        block = text[start:end]
        if b"\\" in block:
            block = block.replace(b"\\\\", b"").replace(b'\\"', b"")
        found = np.frombuffer(block, np.uint8)
        inside = np.bitwise_xor.accumulate((found == QUOTE).view(np.uint8)) ^ is_inside
        structure = found[inside == 0]
        containers += int(np.count_nonzero(structure | LOWER == OPENING))
        commas += int(np.count_nonzero(structure == COMMA))
        colons += int(np.count_nonzero(structure == COLON))
        is_inside = inside[-1] if len(inside) else is_inside
        start = end
    width = 1 if text.isascii() else WIDEST_CHARACTER
    return JsonSize(containers, commas + containers, colons, width * len(text))
