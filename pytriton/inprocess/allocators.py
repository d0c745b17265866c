"""Who makes the buffers of outputs for requests without an allocator of their own."""

from __future__ import annotations

from pytriton.inprocess.devices import allocated, has_gpu
from pytriton.inprocess.enums import MemoryType
from pytriton.inprocess.exceptions import InvalidArgumentError, InvalidTypeError
from pytriton.inprocess.memory import MemoryAllocator, MemoryBuffer, Place

__all__ = ["default_memory_allocators", "made_by"]


class _HostAllocator(MemoryAllocator):
    """Ordinary memory, whatever is wished for."""

    def allocate(self, size: int, memory_type: MemoryType, memory_type_id: int) -> MemoryBuffer:
        return allocated(size, (MemoryType.CPU, 0))


class _DeviceAllocator(MemoryAllocator):
    """Memory where it is wished for."""

    def allocate(self, size: int, memory_type: MemoryType, memory_type_id: int) -> MemoryBuffer:
        return allocated(size, (memory_type, memory_type_id))


_on_gpus = _DeviceAllocator()

#: Who makes the buffers of outputs, by where they are to lie. One for ``MemoryType.GPU`` may be added; without one,
#: CuPy makes them if it is there.
default_memory_allocators: dict[MemoryType, MemoryAllocator] = dict.fromkeys(
    (MemoryType.CPU, MemoryType.CPU_PINNED), _HostAllocator()
)


def made_by(allocator: MemoryAllocator | None, wish: Place | None) -> MemoryAllocator | None:
    """Who makes the buffers of a request's outputs; None: C++ does, in ordinary memory.

    Args:
        allocator: The request's own.
        wish: Where they are to lie, as far as the request says.

    Raises:
        InvalidTypeError: The allocator is none.
        InvalidArgumentError: They are to lie in memory that nobody makes.
    """
    if allocator is not None:
        if not callable(getattr(allocator, "allocate", None)):
            raise InvalidTypeError(f"output_memory_allocator is {allocator!r:.200}; give a MemoryAllocator")
        return allocator
    memory_type = MemoryType.CPU if wish is None else wish[0]
    default = default_memory_allocators.get(memory_type)
    if default is None and memory_type == MemoryType.GPU and has_gpu():
        return _on_gpus
    if default is None:
        raise InvalidArgumentError(
            f"nobody makes outputs in memory of the kind {memory_type.name}: give an output_memory_allocator, or add "
            "one to default_memory_allocators; for memory of GPUs, CuPy does: pip install 'pytriton[cuda]'"
        )
    return None if isinstance(default, _HostAllocator) else default
