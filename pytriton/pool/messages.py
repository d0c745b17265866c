"""What a worker process is told at its start, and how that is pickled; ``wire/control.py`` has the later messages."""

from __future__ import annotations

import io
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from inspect import unwrap
from types import FunctionType, MethodType
from typing import Any

import cloudpickle
import wrapt

from pytriton.decorators.signatures import wrapper_of
from pytriton.exceptions import PyTritonValidationError, PyTritonWorkerError
from pytriton.pool.pipes import MessagePipe
from pytriton.pool.resources import WorkerResources

__all__ = ["ProcessSpec", "dumps", "pickled"]


@dataclass(frozen=True, kw_only=True)
class ProcessSpec(ABC):
    """The data that a process which calls a factory needs to start.

    Attributes:
        name: For the log, and for ``ps``.
        takes_device: Whether the factory has a parameter ``device``.
        index: Of the worker among those of its model on this host, from 0.
        trace_config: Given if the process exports traces.
        log_levels: Of the launching process's loggers, by name.
    """

    name: str
    factory: Callable[..., Any]
    takes_device: bool
    resources: WorkerResources
    index: int = 0
    trace_config: Sequence[str] | None = None
    log_levels: dict[str, int] = field(default_factory=dict)

    def call_factory(self) -> Any:
        """Returns the inference callable."""
        return self.factory(device=self.resources.device_in_worker) if self.takes_device else self.factory()

    def inference_callable(self) -> Any:
        """What the factory makes, as it is served.

        Raises:
            BaseException: Whatever the factory raises.
            PyTritonValidationError: The factory returned an object that cannot be called, or not as the model does.
        """
        function = self.call_factory()
        if not callable(function):
            raise PyTritonValidationError(f"the factory returned {function!r}, which cannot be called")
        return function

    @abstractmethod
    def start(self, pipe: MessagePipe, descriptors: Sequence[int]) -> Callable[[], None]:
        """In the process: make what it serves. Raises as :meth:`inference_callable`.

        Args:
            pipe: To the launching process.
            descriptors: That the process has inherited.

        Returns:
            Serves to the end.
        """


def dumps(value: Any) -> bytes:
    """Pickle a value for :func:`pickle.loads` in another interpreter.

    Functions of any kind can be pickled, also those of ``__main__`` and of notebooks, with their decorators.

    Raises:
        Exception: A part of the value cannot be pickled; of any class.
    """
    buffer = io.BytesIO()
    _Pickler(buffer).dump(value)
    return buffer.getvalue()


def pickled(spec: Any) -> bytes:
    """Pickle what a worker process is told; raises PyTritonWorkerError if its factory cannot be pickled."""
    try:
        return dumps(spec)
    except Exception as error:
        raise PyTritonWorkerError(
            f"the factory cannot be pickled, {type(error).__name__}: {error}; create the objects that it needs "
            "within it"
        ) from error


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """Keeps decorators. cloudpickle drops them silently, because they look like the functions that they wrap."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, wrapt.BoundFunctionWrapper):
            method = value.__wrapped__
            if isinstance(method, MethodType):
                return getattr, (method.__self__, method.__name__)
        elif isinstance(value, wrapt.FunctionWrapper):
            if value.__module__ != "__main__" and _importable(value) is value:
                return str(value.__qualname__)  # by reference
            return _decorated, (value.__wrapped__, wrapper_of(value))
        elif isinstance(value, FunctionType) and (decorator := _decorator_of(value)) is not None:
            return unwrap, (decorator,)
        return super().reducer_override(value)


def _decorated(wrapped: Any, wrapper: Any) -> Any:
    # The class cannot be pickled itself: its compiled version does not know its module.
    return wrapt.FunctionWrapper(wrapped, wrapper)


def _decorator_of(function: FunctionType) -> Any:
    """The object that replaced a function under its name, if ``wrapt.decorator`` made it of that function."""
    named = _importable(function)
    is_made_of_it = named is not function and callable(named) and unwrap(named) is function
    return named if is_made_of_it and function.__module__ != "__main__" else None


def _importable(value: Any) -> Any:
    """The object that a function's module has under the function's name; None if there is none."""
    found: Any = sys.modules.get(value.__module__)
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found
