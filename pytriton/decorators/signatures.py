"""Make decorators that say how they change a function's parameters, and check a decorated function with that.

decorator            passes the parameters of the function on as they are
unpacking_decorator  calls the function with a keyword argument for each input, instead of the list of requests
adding_decorator     adds keyword arguments
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, MethodType
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar

import wrapt

from pytriton.exceptions import PyTritonValidationError
from pytriton.introspection import signature_of
from pytriton.logs import get_logger
from pytriton.model_config.triton_model_config import TritonModelConfig

__all__ = [
    "WRAPPERS",
    "AddingDecorator",
    "Change",
    "Decorated",
    "Decorator",
    "UnpackingDecorator",
    "Wrapped",
    "Wrapper",
    "adding_decorator",
    "change_of",
    "changing_decorator",
    "check_callable",
    "check_factory",
    "decorator",
    "unpacking_decorator",
    "wrapper_of",
]

LOGGER = get_logger(__name__)

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
F = TypeVar("F", bound=Callable[..., Any])

Wrapped = Callable[..., Any]
Wrapper = Callable[[Wrapped, Any, tuple[Any, ...], dict[str, Any]], Any]
"""Arguments: the wrapped function (bound, if a method), its object or None, positional arguments, keyword arguments."""

WRAPPERS = (wrapt.FunctionWrapper, wrapt.BoundFunctionWrapper)
FUNCTIONS = (FunctionType, MethodType, functools.partial)


class Change(NamedTuple):
    """How a decorator changes the arguments of a call.

    Attributes:
        unpacks: Whether it turns the list of requests into a keyword argument for each input.
        adds: Names of the keyword arguments that it adds.
        fills: Names of inputs that it adds to requests without them.
        reduces: Names of inputs of which it passes one value in place of rows.
        anywhere: Whether it works at any position of a stack of decorators, also above functions of Python values.
    """

    unpacks: bool = False
    adds: tuple[str, ...] = ()
    fills: tuple[str, ...] = ()
    reduces: tuple[str, ...] = ()
    anywhere: bool = False


class Decorated(Protocol[P, R_co]):
    """A function that is called with the list of requests, and calls the wrapped one with each input by its name."""

    @property
    def __wrapped__(self) -> Callable[P, R_co]:
        """The function without the decorator."""

    def __call__(self, requests: Sequence[Mapping[str, Any]], /, *args: Any, **kwargs: Any) -> Any:
        """One result per request; awaited from coroutines, and yielded by generators."""

    def __get__(self, instance: Any, owner: type[Any] | None = None, /) -> Decorated[P, R_co]:
        """A method of an object."""


class Decorator(Protocol):
    """For a type checker, keeps a function's parameters and result."""

    def __call__(self, wrapped: F, /) -> F:
        """Decorate a function."""


class UnpackingDecorator(Protocol):
    """Turns the list of requests into a keyword argument for each input."""

    def __call__(self, wrapped: Callable[P, R], /) -> Decorated[P, R]:
        """Decorate a function."""


class AddingDecorator(Protocol):
    """Adds keyword arguments, which the caller of the decorated function does not give."""

    def __call__(self, wrapped: Callable[..., R], /) -> Callable[..., R]:
        """Decorate a function."""


def decorator(wrapper: Wrapper) -> Decorator:
    """Make ``wrapper`` a decorator of functions, methods, callable objects and other callables."""
    made: Decorator = _decorator(wrapper, Change())
    return made


def unpacking_decorator(wrapper: Wrapper) -> UnpackingDecorator:
    """As :func:`decorator`, of a wrapper that passes each input as a keyword argument."""
    made: UnpackingDecorator = _decorator(wrapper, Change(unpacks=True))
    return made


def adding_decorator(*names: str, anywhere: bool = False) -> Callable[[Wrapper], AddingDecorator]:
    """As :func:`decorator`, of a wrapper that adds keyword arguments of these names.

    Args:
        anywhere: As in :class:`Change`.
    """
    return lambda wrapper: _decorator(wrapper, Change(adds=names, anywhere=anywhere))


def changing_decorator(change: Change) -> Callable[[Wrapper], Decorator]:
    """As :func:`decorator`, of a wrapper that changes the inputs."""
    return lambda wrapper: _decorator(wrapper, change)


def _decorator(wrapper: Any, change: Change) -> Any:
    if sys.version_info >= (3, 13):
        wrapper = _bind_class_methods(wrapper)
    wrapper.change = change
    return wrapt.decorator(wrapper)


def _bind_class_methods(wrapper: Wrapper) -> Wrapper:
    """Bind the function to the class, which ``classmethod`` passes as an argument since Python 3.13."""

    def bound(wrapped: Wrapped, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if instance is None and args and isinstance(args[0], type):
            return wrapper(MethodType(wrapped, args[0]), args[0], args[1:], kwargs)
        return wrapper(wrapped, instance, args, kwargs)

    functools.update_wrapper(bound, wrapper)
    del bound.__wrapped__  # type: ignore[attr-defined]  # inspect.unwrap() ends at what wrapt calls
    return bound


def wrapper_of(decorated: Any) -> Any:
    """The wrapper of a function that was decorated through wrapt: of an object of one of WRAPPERS."""
    return decorated._self_wrapper  # wrapt has no public name for it; tested with 1.16 and 2.5


def change_of(decorated: Any) -> Change | None:
    """The change that a decorated function makes; None if the decorator is not one of this package."""
    change = getattr(wrapper_of(decorated), "change", None)
    return change if isinstance(change, Change) else None


def check_callable(function: Any, config: TritonModelConfig) -> None:
    """Check that a callable can take the arguments that it will get through the decorators of this package.

    Only a call that is certain to fail is refused: the effect of other decorators, and the parameters of built-in
    functions, are not known. A function without parameters is a warning.

    Args:
        function: An inference callable, as given to ``bind``.

    Raises:
        PyTritonValidationError: It is a class, or its parameters do not fit the arguments.
    """
    if isinstance(function, type):
        if _call_of(function) is None:
            return
        raise PyTritonValidationError(
            f"infer_func of model {config.model_name!r} is the class {function.__qualname__}; give an object of it, "
            f"such as {function.__qualname__}()"
        )
    unpacked, added = False, dict[str, Any]()
    while type(function) not in FUNCTIONS:  # not isinstance(): a wrapper has the class of the wrapped function
        if isinstance(function, WRAPPERS):
            change = change_of(function)
            if change is None:
                return
            unpacked |= change.unpacks
            added |= dict.fromkeys(change.adds)
            function = function.__wrapped__
        elif (call := _call_of(type(function))) is not None:
            function = call.__get__(function, type(function))
        else:
            return
    signature = _signature(function)
    if signature is not None:
        check = _check_unpacked if unpacked else _check_listed
        check(function, signature, config, added)


def check_factory(factory: Any) -> None:
    """Check that a factory of :class:`pytriton.workers.Processes` is not the inference callable itself.

    Raises:
        PyTritonValidationError: It is decorated as one, or requires an argument.
    """
    signature = _signature(factory) if type(factory) in FUNCTIONS else None
    needed = [] if signature is None else _required(signature)
    if needed or (isinstance(factory, WRAPPERS) and change_of(factory) is not None):
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
    """The signature of the function itself, not of the one that it wraps; None if it is not known."""
    if isinstance(function, functools.partial) and type(function.func) not in FUNCTIONS:
        return None
    if "__signature__" in getattr(function, "__dict__", {}):
        return None
    try:
        return signature_of(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return None


def _check_unpacked(
    function: Any, signature: inspect.Signature, config: TritonModelConfig, added: dict[str, Any]
) -> None:
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
    if not signature.parameters and not added:  # a placeholder, which some programs bind and never call
        LOGGER.warning(
            "%s() takes no arguments: model %s can be bound, but each of its requests will fail; give the function "
            "one parameter, the list of requests",
            _described(function),
            config.model_name,
        )
        return
    try:
        signature.bind([], **added)
    except TypeError as error:
        decorator = "@batch" if config.batching else "@sample"
        also = f" and {', '.join(added)}" if added else ""
        raise PyTritonValidationError(
            f"{_described(function)}{signature} does not fit model {config.model_name!r}, which passes one list of "
            f"requests{also}: {error}; to get each input as an argument, put {decorator} above the function"
        ) from None


def _required(signature: inspect.Signature) -> list[str]:
    """The parameters of a factory that require an argument, except the worker's device."""
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        repr(name)
        for name, parameter in signature.parameters.items()
        if parameter.default is parameter.empty and parameter.kind not in variable and name != "device"
    ]


def _described(function: Any) -> str:
    return getattr(function, "__qualname__", None) or repr(function)
