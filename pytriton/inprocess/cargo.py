"""What must stay in memory while the server has a request: its inputs, and buffers that its allocator made."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from pytriton.inprocess.enums import MemoryType
from pytriton.inprocess.exceptions import InternalError
from pytriton.inprocess.memory import MemoryAllocator, MemoryBuffer

__all__ = ["Cargo", "aloft"]

aloft: dict[int, Cargo] = {}  # of each request that the server has, by the number that the request goes by
_tokens = count(1)


class Cargo:
    """The cargo of one request.

    Args:
        inputs: What owns their memory.
        allocator: Makes buffers for outputs; None: C++ does.

    Attributes:
        buffers: Those made for outputs of responses that nobody has read yet, by their tokens.
    """

    __slots__ = ("allocator", "buffers", "inputs")

    def __init__(self, inputs: Sequence[object], allocator: MemoryAllocator | None) -> None:
        self.inputs, self.allocator = inputs, allocator
        self.buffers: dict[int, MemoryBuffer] = {}

    def make(self, size: int, memory_type: MemoryType, memory_type_id: int) -> tuple[int, MemoryBuffer]:
        """A buffer of the allocator's, and its token.

        Raises:
            Exception: The allocator's own.
            InternalError: It made too small a one, or none.
        """
        assert self.allocator is not None
        made = self.allocator.allocate(size, memory_type, memory_type_id)
        if not isinstance(made, MemoryBuffer):
            raise InternalError(f"the allocator made {made!r}; a MemoryBuffer is needed")
        if made.size < size:
            raise InternalError(f"the allocator made a buffer of {made.size} bytes; {size} are needed")
        token = next(_tokens)
        self.buffers[token] = made
        return token, made
