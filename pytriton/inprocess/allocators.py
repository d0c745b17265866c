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


class _GpuAllocator(MemoryAllocator):
    """Memory of a GPU, by CuPy."""

    def allocate(self, size: int, memory_type: MemoryType, memory_type_id: int) -> MemoryBuffer:
        return allocated(size, (MemoryType.GPU, memory_type_id))


_host = _HostAllocator()

#: Allocators of outputs by the type of memory that a request wants. They may be replaced or deleted.
default_memory_allocators: dict[MemoryType, MemoryAllocator] = {
    MemoryType.CPU: _host,
    MemoryType.CPU_PINNED: _host,
    MemoryType.GPU: _GpuAllocator(),
}


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
    if default is None or (isinstance(default, _GpuAllocator) and not has_gpu()):
        raise InvalidArgumentError(
            f"nobody makes outputs in memory of the kind {memory_type.name}: give an output_memory_allocator, or add "
            "one to default_memory_allocators; for memory of GPUs, CuPy does: pip install 'pytriton[cuda]'"
        )
    return None if isinstance(default, _HostAllocator) else default
