"""What a model is asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytriton.inprocess.enums import DLDeviceType, MemoryType
from pytriton.inprocess.memory import MemoryAllocator, Place

if TYPE_CHECKING:
    from pytriton.inprocess.model import Model

__all__ = ["InferenceRequest"]


@dataclass
class InferenceRequest:
    """A request, which may be changed, and sent several times, also at once: each time as it is then.

    Attributes:
        model: To be asked.
        request_id: Comes back with the responses.
        flags: 1: a sequence begins; 2: it ends.
        correlation_id: Of the sequence, a number or a text.
        priority: 1 is the highest; 0: the model's default.
        timeout: Microseconds that a dynamic batcher may let it wait; 0: its own limit.
        inputs: Tensors, arrays, lists or what has ``__dlpack__``, by name, with the batch axis. Arrays in C order, and
            in this machine's byte order, are not copied: they must not change before the response.
        parameters: Texts, integers, booleans and floats.
        output_memory_type: Where outputs are to lie: ``"cpu"``, ``"gpu:1"``, a MemoryType, or one with a GPU's number.
        output_memory_allocator: Makes their buffers; without one they lie in memory of the CPU.
        response_queue: Gets each response, as the iterator does.
    """

    model: Model
    request_id: str | None = None
    flags: int = 0
    correlation_id: int | str | None = None
    priority: int = 0
    timeout: int = 0
    inputs: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, str | int | bool | float] = field(default_factory=dict)
    output_memory_type: MemoryType | Place | tuple[DLDeviceType, int] | str | None = None
    output_memory_allocator: MemoryAllocator | None = None
    response_queue: Any = None
