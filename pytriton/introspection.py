"""Parameters and annotations of functions, and cancellations of tasks, in every version of Python.

Since Python 3.14, annotations are evaluated when they are asked for: then a name that is not defined, such as one that
is imported under ``TYPE_CHECKING``, is a NameError. The functions of this module give a ``ForwardRef`` in its place.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, get_args

if sys.version_info >= (3, 14):
    import annotationlib

if TYPE_CHECKING:
    import asyncio

    from typing_extensions import override
else:

    def override(method):
        """``typing.override`` of Python 3.12: the method is one of the class above, which documents it."""
        return method


__all__ = ["annotations_of", "cancellations_of", "override", "parts_of", "signature_of"]


def signature_of(function: Callable[..., Any], *, follow_wrapped: bool = True) -> inspect.Signature:
    """As :func:`inspect.signature`, which raises TypeError and ValueError."""
    if sys.version_info >= (3, 14):
        form = annotationlib.Format.FORWARDREF
        return inspect.signature(function, follow_wrapped=follow_wrapped, annotation_format=form)
    return inspect.signature(function, follow_wrapped=follow_wrapped)


def annotations_of(function: Any, *, as_written: bool = False) -> dict[str, Any]:
    """The annotations of a function; empty if it has none.

    Args:
        as_written: As texts, where they are evaluated later; else as far as they can be evaluated.
    """
    if sys.version_info >= (3, 14):
        form = annotationlib.Format.STRING if as_written else annotationlib.Format.FORWARDREF
        try:
            return annotationlib.get_annotations(function, format=form)
        except TypeError:  # an object of another kind
            return {}
    return dict(getattr(function, "__annotations__", None) or {})


def parts_of(hint: Any) -> Iterator[Any]:
    """An annotation, and all that is within its brackets, at any depth."""
    yield hint
    for part in get_args(hint):
        yield from parts_of(part)


def cancellations_of(task: asyncio.Task[Any]) -> int:
    """How often a task was cancelled; 0 before Python 3.11, which does not count."""
    return task.cancelling() if sys.version_info >= (3, 11) else 0
