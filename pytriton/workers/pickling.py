"""Pickling of what users give: functions of any kind, also of ``__main__`` and of notebooks, and our decorators."""

from __future__ import annotations

import io
import sys
from inspect import unwrap
from types import FunctionType, MethodType
from typing import Any

import cloudpickle
import wrapt

from pytriton.decorators.signatures import wrapper_of

__all__ = ["dumps"]


def dumps(value: Any) -> bytes:
    """Pickle a value for :func:`pickle.loads` in another interpreter.

    Raises:
        Exception: A part of it cannot be pickled; of any class.
    """
    buffer = io.BytesIO()
    _Pickler(buffer).dump(value)
    return buffer.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """Keeps decorators, which cloudpickle would drop without a word: they look like the functions that they wrap."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, wrapt.BoundFunctionWrapper):
            method = value.__wrapped__
            if isinstance(method, MethodType):
                return getattr, (method.__self__, method.__name__)
        elif isinstance(value, wrapt.FunctionWrapper):
            if _is_importable(value):
                return str(value.__qualname__)  # by reference
            return _decorated, (value.__wrapped__, wrapper_of(value))
        elif isinstance(value, FunctionType) and (decorator := _decorator_of(value)) is not None:
            return unwrap, (decorator,)
        return super().reducer_override(value)


def _decorated(wrapped: Any, wrapper: Any) -> Any:
    """The class itself cannot be pickled: where it is compiled, it does not know its module."""
    return wrapt.FunctionWrapper(wrapped, wrapper)


def _is_importable(decorated: Any) -> bool:
    """Whether another interpreter finds it under its name."""
    return decorated.__module__ != "__main__" and _named(decorated) is decorated


def _decorator_of(function: FunctionType) -> Any:
    """What bears a function's name in its place, made of it by ``wrapt.decorator``, as ours are."""
    named = _named(function)
    is_made_of_it = named is not function and callable(named) and unwrap(named) is function
    return named if is_made_of_it and function.__module__ != "__main__" else None


def _named(value: Any) -> Any:
    """What is found under the name that a function believes to have."""
    found: Any = sys.modules.get(value.__module__)
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found
