"""Whether a callable can be called as a model calls it, as far as its signature tells."""

from __future__ import annotations

import functools
import inspect
from types import FunctionType, MethodType
from typing import Any

import wrapt

from pytriton.decorators.calls import passing_of
from pytriton.exceptions import PyTritonValidationError
from pytriton.model_config.triton_model_config import TritonModelConfig

__all__ = ["WRAPPERS", "check_callable", "check_factory"]

WRAPPERS = (wrapt.FunctionWrapper, wrapt.BoundFunctionWrapper)
PLAIN = (FunctionType, MethodType, functools.partial)


def check_callable(function: Any, config: TritonModelConfig) -> None:
    """Check that a model's requests can reach a callable through our decorators.

    Only what is certain to fail is refused: what other decorators do, and what built-in functions take, is not known.

    Args:
        function: An inference callable, as it is given to ``bind``.
        config: Of the model.

    Raises:
        PyTritonValidationError: It is a class, or its parameters are not what it is going to be called with.
    """
    if isinstance(function, type):
        if _call_of(function) is None:
            return
        raise PyTritonValidationError(
            f"infer_func of model {config.model_name!r} is the class {function.__qualname__}; give an object of it, "
            f"such as {function.__qualname__}()"
        )
    by_name, added = False, dict[str, Any]()
    while type(function) not in PLAIN:  # a wrapper says that its class is that of what it wraps
        if isinstance(function, WRAPPERS):
            passing = passing_of(function._self_wrapper)
            if passing is None:
                return
            by_name |= passing.by_name
            added |= dict.fromkeys(passing.adds)
            function = function.__wrapped__
        elif (call := _call_of(type(function))) is not None:
            function = call.__get__(function, type(function))
        else:
            return
    signature = _signature(function)
    if signature is not None:
        _check(function, signature, config, added) if by_name else _check_listed(function, signature, config, added)


def check_factory(factory: Any) -> None:
    """Check that a factory of :class:`pytriton.workers.Processes` is not the inference callable itself.

    Raises:
        PyTritonValidationError: It is decorated as one, or has to be given something.
    """
    signature = _signature(factory) if type(factory) in PLAIN else None
    needed = [] if signature is None else _needed(signature)
    if needed or (isinstance(factory, WRAPPERS) and passing_of(factory._self_wrapper) is not None):
        what = f"needs {', '.join(needed)}" if needed else "is decorated as an inference callable is"
        raise PyTritonValidationError(
            f"factory {_described(factory)} {what}; give Processes a function without parameters (but device) that "
            "returns the inference callable, such as lambda: infer"
        )


def _call_of(kind: type) -> Any:
    """The ``__call__`` of a class, if it was written in Python."""
    call = inspect.getattr_static(kind, "__call__", None)
    return call if isinstance(call, (FunctionType, *WRAPPERS)) else None


def _signature(function: Any) -> inspect.Signature | None:
    """What a function really takes, whatever it passes itself off for; None if that is not known."""
    if isinstance(function, functools.partial) and type(function.func) not in PLAIN:
        return None
    if "__signature__" in getattr(function, "__dict__", {}):
        return None
    try:
        return inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return None


def _check(function: Any, signature: inspect.Signature, config: TritonModelConfig, added: dict[str, Any]) -> None:
    """Check a function that gets each input as a keyword argument."""
    inputs = config.inputs or ()
    known = signature.parameters
    passed = {spec.name: None for spec in inputs if not spec.optional or spec.name in known} | added
    try:
        signature.bind(**passed)
    except TypeError as error:
        names = ", ".join([*(spec.name for spec in inputs), *added]) or "nothing"
        raise PyTritonValidationError(
            f"{_described(function)}{signature} does not fit model {config.model_name!r}, which passes the keyword "
            f"arguments {names}: {error}; give the function's parameters the names of the inputs, or the inputs those "
            "of the parameters"
        ) from None


def _check_listed(
    function: Any, signature: inspect.Signature, config: TritonModelConfig, added: dict[str, Any]
) -> None:
    """Check a function that gets the list of requests."""
    try:
        signature.bind([], **added)
    except TypeError as error:
        decorator = "@batch" if config.batching else "@sample"
        also = f" and {', '.join(added)}" if added else ""
        raise PyTritonValidationError(
            f"{_described(function)}{signature} does not fit model {config.model_name!r}, which passes one list of "
            f"requests{also}: {error}; to get each input as an argument, put {decorator} above the function"
        ) from None


def _needed(signature: inspect.Signature) -> list[str]:
    """What a factory would have to be given, beside its worker's device."""
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        repr(name)
        for name, parameter in signature.parameters.items()
        if parameter.default is parameter.empty and parameter.kind not in variable and name != "device"
    ]


def _described(function: Any) -> str:
    return getattr(function, "__qualname__", None) or repr(function)
