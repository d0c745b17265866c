"""Gives callables the handles that their parameters ask for."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

from pytriton.composition.connector import Connector
from pytriton.decorators.signatures import WRAPPERS, adding_decorator
from pytriton.exceptions import PyTritonValidationError
from pytriton.introspection import annotations_of, parts_of
from pytriton.worker.results import is_async

if TYPE_CHECKING:
    from pytriton.composition.handle import ModelHandle

__all__ = ["callees_of", "with_handles"]


def callees_of(function: Any) -> dict[str, str]:
    """The models that a callable asks for, by parameter.

    Args:
        function: As it is given to ``bind``.

    Raises:
        PyTritonValidationError: An annotation that names ModelHandle cannot be resolved, or has something else than the
            name of a model.
    """
    bound: set[str] = set()
    while type(function) not in (FunctionType, MethodType):
        if isinstance(function, WRAPPERS):
            function = function.__wrapped__
        elif isinstance(function, functools.partial):
            bound |= function.keywords.keys()
            function = function.func
        elif isinstance(inspect.getattr_static(type(function), "__call__", None), (FunctionType, *WRAPPERS)):
            function = function.__call__
        else:
            return {}
    written = annotations_of(function, as_written=True)
    if not any("ModelHandle" in str(annotation) for annotation in written.values()):
        return {}
    try:
        hints = get_type_hints(function, include_extras=True)
    except Exception as error:
        raise PyTritonValidationError(
            f"the annotations of {function.__qualname__} cannot be resolved ({error}); import ModelHandle, and "
            "what else they name, at the top of the module, and not under TYPE_CHECKING"
        ) from error
    return {
        name: callee
        for name, hint in hints.items()
        if name not in bound and (callee := _callee(function, name, hint)) is not None
    }


def _callee(function: Any, parameter: str, hint: Any) -> str | None:
    from pytriton.composition.handle import ModelHandle

    if hint is ModelHandle:
        return parameter
    if get_origin(hint) is not Annotated or get_args(hint)[0] is not ModelHandle:
        if any(each is ModelHandle for each in parts_of(hint)):
            raise PyTritonValidationError(
                f"{function.__qualname__}: parameter {parameter!r} is annotated with {hint}, but it gets a ModelHandle "
                "whether the model is bound or not, and a call raises ModelCallError if it is not. Write "
                f"{parameter}: ModelHandle"
            )
        return None
    _, *names = get_args(hint)
    if len(names) != 1 or not isinstance(names[0], str):
        raise PyTritonValidationError(
            f'{function.__qualname__}: parameter {parameter!r} names no model; write Annotated[ModelHandle, "name"]'
        )
    return names[0]


def with_handles(function: Any, model: str, connector: Callable[[], Connector | None] | None) -> Any:
    """The callable of a model with a handle for each parameter that asks for one; itself if none does.

    Args:
        model: The model that the callable serves.
        connector: As that of a :class:`ModelHandle`.

    Raises:
        PyTritonValidationError: As :func:`callees_of`; or it calls its own model.
    """
    callees = callees_of(function)
    if not callees:
        return function
    if model in callees.values():
        raise PyTritonValidationError(
            f"the callable of model {model!r} calls {model!r}, which would wait for itself; call the function instead"
        )
    from pytriton.composition.handle import ModelHandle

    handles = {
        parameter: ModelHandle(callee, model, connector, is_async=is_async(function))
        for parameter, callee in callees.items()
    }
    return adding_decorator(*handles, anywhere=True)(_adding(handles))(function)


def _adding(handles: Mapping[str, ModelHandle]) -> Any:
    def add_handles(wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
        return wrapped(*args, **{**handles, **kwargs})

    return add_handles
