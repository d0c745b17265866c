"""Memory shared between a proxy and its worker: each side lays its large tensors out in an arena of its own.

An arena is an anonymous memory file: tens of GiB of address space of which only touched pages exist, with no name to
leak and no ``/dev/shm`` size limit. The peer gets its file descriptor and maps it. A batch occupies one *region*; the
peer reports a region as released when the last array in it has died.
"""

from __future__ import annotations

import errno
import mmap
import os
import resource
import threading
from bisect import insort
from collections.abc import Iterable

from .tensors import ALIGN

PAGE_BYTES = mmap.PAGESIZE
RESERVE_BYTES = 64 << 30
MIN_RESERVE_BYTES = 1 << 30
GROW_BYTES = 1 << 20
TRIM_AFTER_BATCHES = 64
TRIM_MIN_BYTES = 32 << 20


class ArenaFullError(MemoryError):
    """A batch does not fit: it is too large, memory is short, or the callable keeps too many of its inputs."""


def limit_of(error: OSError) -> str:
    """The limit of this process that explains an error, to be put behind its text; empty if there is none."""
    limits = {
        errno.EFBIG: ("RLIMIT_FSIZE (ulimit -f)", resource.RLIMIT_FSIZE),
        errno.ENOMEM: ("RLIMIT_AS (ulimit -v)", resource.RLIMIT_AS),
    }
    name, number = limits.get(error.errno or 0, ("", -1))
    limit = resource.getrlimit(number)[0] if name else resource.RLIM_INFINITY
    return "" if limit == resource.RLIM_INFINITY else f"; {name} is {limit} bytes, raise it"


def map_shared(fd: int) -> mmap.mmap:
    """Map the whole of a memory file, for reading and writing."""
    try:
        memory = mmap.mmap(fd, os.fstat(fd).st_size)
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror}{limit_of(error)}") from error
    memory.madvise(mmap.MADV_DONTDUMP)  # a core dump would make a page of memory for each that is reserved
    return memory


class Arena:
    """The owner's side of an arena: decides which region each batch gets. Any thread may allocate and free.

    Args:
        fd: The memory file of an owner that has gone, which this one closes; default: a new one.
        regions: As that owner's :meth:`give_back` has returned them.

    Attributes:
        fd: The memory file, to be passed to the peer.
        memory: The mapping.
    """

    def __init__(
        self, reserve_bytes: int = RESERVE_BYTES, fd: int = -1, regions: Iterable[tuple[int, int]] = ()
    ) -> None:
        self.fd = os.memfd_create("pytriton-arena", os.MFD_CLOEXEC) if fd < 0 else fd
        self.memory = self._reserve(reserve_bytes) if fd < 0 else map_shared(fd)
        self._lock = threading.Lock()
        self._regions: list[tuple[int, int]] = [*regions]  # (first byte, end), sorted
        self._backed = 0  # bytes from the start for which pages exist
        self._peak = 0  # highest end among the last batches
        self._batches = 0

    def _reserve(self, size: int) -> mmap.mmap:
        while True:
            try:
                os.ftruncate(self.fd, size)
                return map_shared(self.fd)
            except (OSError, ValueError) as error:  # ulimit -v, strict overcommit: less will do
                size //= 2
                if size < MIN_RESERVE_BYTES:
                    os.close(self.fd)
                    if not isinstance(error, OSError) or error.errno != errno.EFBIG:
                        raise
                    raise OSError(error.errno, f"{error.strerror}{limit_of(error)}") from error

    def allocate(self, size: int) -> int:
        """Take a region of ``size`` bytes; returns its offset, a multiple of ALIGN.

        Raises:
            ArenaFullError: There is no room or no memory.
        """
        with self._lock:
            first = 0
            for start, end in self._regions:
                if start - first >= size:
                    break
                first = end
            end = first + size + (-size % ALIGN)
            if end > len(self.memory):
                raise ArenaFullError(
                    f"no room for a batch of {size} bytes: {len(self._regions)} earlier ones are still referenced; "
                    "copy what the callable keeps"
                )
            self._back(end)
            insort(self._regions, (first, end))
            return first

    def free(self, offset: int) -> None:
        """Give the region at ``offset`` back; unknown offsets are ignored."""
        with self._lock:
            self._regions = [region for region in self._regions if region[0] != offset]

    def used_bytes(self) -> int:
        """Bytes in regions that the peer has not released."""
        return sum([end - first for first, end in self._regions])

    def skip(self) -> None:
        """Count a batch that travels without a region, as large ones do: what they took is not needed for it."""
        if self._backed > TRIM_MIN_BYTES:
            with self._lock:
                self._count()

    def _count(self) -> None:
        self._batches += 1
        if self._batches >= TRIM_AFTER_BATCHES:
            self._trim()

    def _back(self, end: int) -> None:
        """Make pages exist up to ``end``, lest a write hits a shortage as SIGBUS; drop them when long unused."""
        self._peak = max(self._peak, end)
        self._count()
        if end > self._backed:
            target = min(end + (-end % GROW_BYTES), len(self.memory))
            try:
                os.posix_fallocate(self.fd, self._backed, target - self._backed)
            except OSError as error:
                raise ArenaFullError(f"no memory for a batch that ends at byte {end}: {error.strerror}") from error
            self._backed = target

    def _trim(self) -> None:
        """Give pages back that no batch has needed for a while."""
        keep = max([self._peak, *(end for _, end in self._regions)])
        if self._backed - keep > max(TRIM_MIN_BYTES, keep):
            self._remove(keep)
        self._peak = self._batches = 0

    def _remove(self, keep: int) -> None:
        """Give the pages back behind the first bytes."""
        keep += -keep % PAGE_BYTES
        if self._backed > keep:
            self.memory.madvise(mmap.MADV_REMOVE, keep, self._backed - keep)
            self._backed = keep

    def give_back(self) -> list[tuple[int, int]]:
        """Give all pages back that are not needed; returns the regions that the peer has not released."""
        with self._lock:
            self._remove(max((end for _, end in self._regions), default=0))
            return [*self._regions]

    def close(self) -> None:
        """Forget the memory file; the mapping goes with its last array."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
