"""What a worker process is told at its start, and how that is pickled; ``wire/control.py`` has the later messages."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from inspect import unwrap
from types import FunctionType, MethodType
from typing import Any

import cloudpickle
import wrapt

from pytriton.composition.connector import Connector
from pytriton.decorators.signatures import wrapper_of
from pytriton.exceptions import PyTritonWorkerError
from pytriton.model_config import Recording
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.pool.resources import WorkerResources
from pytriton.worker.inference import Options

__all__ = ["WorkerSpec", "dumps", "pickled"]


@dataclass(frozen=True)
class WorkerSpec:
    """The data that a worker needs to start.

    Attributes:
        takes_device: Whether the factory has a parameter ``device``.
        path: Of the instance's socket, on which the launching process listens.
        trace_config: Given if the worker exports traces.
        max_requests: The worker reports when it has been sent this many; None is never.
        instances: How many model instances it has; their sockets have numbers that follow each other.
        log_levels: Of the launching process's loggers, by name.
        connector: Connects the callable to the server; None if that has no address.
        recording: What is recorded from the start, but warm-ups.
    """

    name: str
    factory: Callable[..., Any]
    takes_device: bool
    resources: WorkerResources
    path: str
    config: TritonModelConfig
    options: Options
    trace_config: Sequence[str] | None
    max_requests: int | None
    log_levels: dict[str, int] = field(default_factory=dict)
    connector: Connector | None = None
    recording: Recording | None = None
    instances: int = 1

    @property
    def index(self) -> int:
        """Of the worker among those of its model, from 0."""
        return int(self.path.rpartition(".")[2]) // self.instances

    def paths(self) -> list[str]:
        """Of the sockets of all its instances."""
        prefix, _, first = self.path.rpartition(".")
        return [self.path, *(f"{prefix}.{int(first) + number}" for number in range(1, self.instances))]

    def call_factory(self) -> Any:
        """Returns the inference callable."""
        return self.factory(device=self.resources.device_in_worker) if self.takes_device else self.factory()


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
