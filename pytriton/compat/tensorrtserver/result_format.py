"""In which form an output is wanted."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

from pytriton.compat.tensorrtserver.exceptions import InferenceServerException
from pytriton.compat.tensorrtserver.shared_memory_handle import SharedMemoryHandle

__all__ = ["RequestedOutput", "ResultFormat"]


class ResultFormat:
    """The forms: ``RAW``, all values as an array, and ``(CLASS, k)``, the k best classes."""

    RAW = 1
    CLASS = 2


@dataclass(frozen=True)
class RequestedOutput:
    """One output that a request asks for.

    Args:
        name: Of the output.
        class_count: How many of the best classes; 0 is all values.
        region: Where the server puts the values instead of the response.
        handle: What the program named it by.
    """

    name: str
    class_count: int = 0
    region: SharedMemoryHandle | None = None
    handle: Any = None

    @classmethod
    def of(cls, name: str, wanted: Any) -> RequestedOutput:
        """The output of an entry in the ``outputs`` of :meth:`InferContext.run`.

        Raises:
            InferenceServerException: It is not ``RAW``, ``(CLASS, k)`` or ``(RAW, handle)``.
        """
        form, *more = wanted if isinstance(wanted, (list, tuple)) and wanted else (wanted,)
        if isinstance(form, int) and form == ResultFormat.RAW:
            if not more:
                return cls(name)
            if len(more) == 1:
                return cls(name, region=SharedMemoryHandle.of(more[0]), handle=more[0])
        if isinstance(form, int) and form == ResultFormat.CLASS and len(more) == 1 and (count := _count(more[0])):
            return cls(name, class_count=count)
        raise InferenceServerException(
            f"output {name!r} is wanted as {wanted!r}, but must be as ResultFormat.RAW, (ResultFormat.RAW, handle of "
            "shared memory), or (ResultFormat.CLASS, count of classes)"
        )


def _count(value: Any) -> int:
    """Of classes; 0 if it is none."""
    try:
        return max(0, operator.index(value))
    except TypeError:
        return 0
