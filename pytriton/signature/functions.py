"""The function of a callable, below decorators, partials and objects: its parameters and result."""

from __future__ import annotations

import collections.abc as abc
import functools
import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import FunctionType, MethodType
from typing import Annotated, Any, NoReturn, Optional, get_args, get_origin, get_type_hints

from pytriton.decorators.signatures import WRAPPERS, change_of, wrapper_of
from pytriton.exceptions import PyTritonValidationError
from pytriton.introspection import annotations_of, parts_of, signature_of
from pytriton.signature.annotations import split
from pytriton.signature.records import Docstring

__all__ = ["BATCH", "LISTS", "REQUESTS", "SAMPLE", "VALUES", "Described", "describe", "name_of"]

PLAIN = (FunctionType, MethodType)
VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
STREAMS = (abc.Iterator, abc.Iterable, abc.Generator, abc.AsyncIterator, abc.AsyncIterable, abc.AsyncGenerator)
ONLY_STREAMS = {abc.Iterator, abc.Generator, abc.AsyncIterator, abc.AsyncIterable, abc.AsyncGenerator}

COLUMNS = {list, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable}

BATCH, SAMPLE, VALUES, LISTS, REQUESTS = "batch", "sample", "values", "lists", "requests"


@dataclass
class Described:
    """A callable.

    Attributes:
        function: What was written with ``def``, or an object of another library; a bound method is bound.
        passes: How it is called: BATCH and SAMPLE for keyword arrays, VALUES for the Python values of one request,
            LISTS for lists with the Python values of all rows of a batch, REQUESTS for a list of requests.
        parameters: Those that are inputs, by name; without those that decorators, partials and ``self`` give, and
            without models that it calls.
        hints: Their annotations, evaluated, and that of ``return``; without those that there are not. If it gets
            lists, those of their elements.
        listed: Names of inputs that it gets as a list with a value for each row. Others are one value for all rows.
        stacks: Whether it gets lists and returns an array with a row for each, whose annotation has the batch axis.
        takes_others: Whether it takes any keyword arguments.
        filled: Names of inputs that ``@fill_optionals`` adds where a request lacks them.
        single: Names of inputs that ``@first_value`` reduces to a value.
        is_async: Whether it is a coroutine function, or an async generator function.
        streams: Whether it answers a request with several values.
        summary: The first paragraph of its docstring.
        descriptions: What the docstring says of each parameter.
    """

    function: Any
    passes: str = VALUES
    parameters: dict[str, inspect.Parameter] = field(default_factory=dict)
    hints: dict[str, Any] = field(default_factory=dict)
    listed: tuple[str, ...] = ()
    stacks: bool = False
    takes_others: bool = False
    filled: tuple[str, ...] = ()
    single: tuple[str, ...] = ()
    is_async: bool = False
    streams: bool = False
    summary: str = ""
    descriptions: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name in messages."""
        return getattr(self.function, "__qualname__", None) or repr(self.function)

    @property
    def result(self) -> Any:
        """The annotation of a result, or of one value of a stream; None if there is none."""
        hint = self.hints.get("return")
        origin = get_origin(hint) or hint
        if self.streams and origin in STREAMS:
            args = get_args(hint)
            return args[0] if args else None
        return hint

    @property
    def positional(self) -> list[str]:
        """Names of positional-only parameters."""
        return [each.name for each in self.parameters.values() if each.kind is each.POSITIONAL_ONLY]

    @property
    def absent(self) -> dict[str, Any]:
        """The arguments for optional inputs that a request lacks and that a call must pass, by name."""
        needed = {each.name: None for each in self.parameters.values() if each.default is each.empty}
        optional = {name: value for name, value in needed.items() if split(self.hints.get(name))[2]}
        return {**optional, **{name: self.parameters[name].default for name in self.positional if name not in needed}}

    def refuse(self, parameter: str, problem: str, line: str) -> NoReturn:
        """Raise PyTritonValidationError for a parameter, with the line to write instead."""
        raise PyTritonValidationError(f"{self.name}: parameter {parameter!r} {problem}; write {line}")


def describe(function: Any) -> Described:
    """Look through decorators, partials and objects.

    Args:
        function: An inference callable, as it is given to ``bind``.

    Raises:
        PyTritonValidationError: It is a class, its parameters are not known, an annotation cannot be resolved, or a
            decorator needs ``@batch`` or ``@sample`` below it.
    """
    passes, added, bound = "", set[str](), dict[str, Any]()
    above, below = list[str](), list[str]()  # decorators of the one that unpacks requests
    positional = 0
    found = Described(function)
    while type(function) not in PLAIN:
        if isinstance(function, WRAPPERS):
            change = change_of(function)
            if change is not None:
                name = wrapper_of(function).__qualname__.partition(".")[0]
                passes = name if change.unpacks else passes
                added |= {*change.adds}
                found.filled += change.fills
                found.single += change.reduces
                if not change.unpacks and not change.anywhere:
                    (below if passes else above).append(name)
            function = function.__wrapped__
        elif isinstance(function, functools.partial):
            bound |= function.keywords
            positional += len(function.args)
            function = function.func
        elif isinstance(function, type):
            raise PyTritonValidationError(
                f"infer_func is the class {function.__qualname__}; give an object of it, such as "
                f"{function.__qualname__}()"
            )
        elif isinstance(inspect.getattr_static(type(function), "__call__", None), (FunctionType, *WRAPPERS)):
            function = function.__call__
        else:
            break
    found.function = function
    try:
        signature = signature_of(function)
    except (TypeError, ValueError) as error:
        raise PyTritonValidationError(
            f"the parameters of {found.name} are not known; give bind() inputs and outputs"
        ) from error
    named = [each for each in signature.parameters.values() if each.kind not in VARIABLE][positional:]
    found.takes_others = any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())
    found.parameters = {each.name: each for each in named if each.name not in added | bound.keys()}
    found.hints = _hints(found)
    for name in [name for name, hint in found.hints.items() if _is_handle(hint)]:
        found.parameters.pop(name, None)
        del found.hints[name]
    found.is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
    found.streams = (
        inspect.isgeneratorfunction(function)
        or inspect.isasyncgenfunction(function)
        or (get_origin(found.hints.get("return")) or found.hints.get("return")) in ONLY_STREAMS
    )
    docstring = Docstring.of(function)
    found.summary, found.descriptions = docstring.summary, docstring.parameters
    found.passes = passes or (REQUESTS if _takes_requests(found) else VALUES)
    if above and found.passes == VALUES:
        raise PyTritonValidationError(
            f"{found.name} gets the Python values of one request, which @{above[0]} cannot give it; put @batch or "
            f"@sample below @{above[0]}, or give inputs and outputs to bind"
        )
    if found.passes == BATCH:
        _take_lists(found, below)
    if not passes and found.passes == VALUES:
        for each in signature.parameters.values():
            if each.kind is each.VAR_POSITIONAL:
                found.refuse(f"*{each.name}", "has no name for each input", f"{each.name}: list[float]")
    return found


def name_of(function: Any) -> str:
    """The name of a model that is bound without one: that of its function, or of the class of its object.

    Raises:
        PyTritonValidationError: It has none that says anything.
    """
    if isinstance(function, (list, tuple)) and function:
        return name_of(function[0])
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", None) or type(function).__name__
    if not callable(function) or not name.isidentifier():
        raise PyTritonValidationError(f"{function!r} has no name for a model; give bind() a model_name too")
    return str(name)


def _is_handle(hint: Any) -> bool:
    """Whether a parameter asks for a ModelHandle of ``pytriton.composition``, whose package is above this one."""
    return any(getattr(each, "__module__", "") == "pytriton.composition.handle" for each in parts_of(hint))


def _takes_requests(found: Described) -> bool:
    """Whether it has one parameter, without annotation or annotated as a list of requests."""
    if len(found.parameters) != 1:
        return False
    ((name, parameter),) = found.parameters.items()
    if name not in found.hints:
        return parameter.default is parameter.empty
    bare, _, _ = split(found.hints[name])
    return any(getattr(arg, "__module__", "") == "pytriton.proxy.types" for arg in get_args(bare))


def _take_lists(found: Described, below: Sequence[str]) -> None:
    """Describe a function under ``@batch`` as one of lists, if a parameter is annotated as a list."""
    elements = {name: element for name in found.parameters if (element := _element(found.hints.get(name))) is not None}
    if not elements:
        return
    if below:
        found.refuse(
            next(iter(elements)),
            f"is a list with a value for each row, and @{below[0]} takes arrays",
            f"the function without @{below[0]}: it gets a parameter that is no list as one value for all rows",
        )
    found.passes, found.listed = LISTS, tuple(elements)
    result = found.result
    if "return" in found.hints and result is not None:
        element = _element(result)
        found.stacks = element is None
        elements["return"] = result if element is None else element
    found.hints |= elements


def _element(hint: Any) -> Any:
    """The annotation of the elements of a list, with None if there may be none; None if it is no list."""
    bare, metadata, optional = split(hint)
    if (get_origin(bare) or bare) not in COLUMNS:
        return None
    element = (*get_args(bare), Any)[0]
    for text in metadata:
        element = Annotated[element, text] if isinstance(text, str) else element
    return Optional[element] if optional else element  # noqa: UP045  (of any kind of annotation)


def _hints(found: Described) -> dict[str, Any]:
    function = found.function
    written = annotations_of(inspect.unwrap(function))
    enclosing = _enclosing(function)
    try:
        return get_type_hints(function, localns=enclosing, include_extras=True) if written else {}
    except Exception as error:  # of any class: annotations are expressions
        for name, annotation in written.items():
            try:
                get_type_hints(_Alone(function, name, annotation), localns=enclosing)
            except Exception as reason:
                text = annotations_of(inspect.unwrap(function), as_written=True)[name]
                raise PyTritonValidationError(
                    f"{found.name}: the annotation {text!r} of {_place(name)} cannot be resolved ({reason}); "
                    "define what it names at the top of its module, and not under TYPE_CHECKING. Of functions of "
                    "__main__, such names do not reach worker processes: define them in a module"
                ) from error
        raise PyTritonValidationError(f"the annotations of {found.name} cannot be resolved: {error}") from error


def _place(name: str) -> str:
    return "the result" if name == "return" else f"parameter {name!r}"


class _Alone:
    """A function with one annotation."""

    def __init__(self, function: Any, name: str, annotation: Any) -> None:
        self.__annotations__ = {name: annotation}
        self.__globals__ = getattr(inspect.unwrap(function), "__globals__", {})
        self.__type_params__ = getattr(function, "__type_params__", ())


def _enclosing(function: Any) -> dict[str, Any] | None:
    """The variables of enclosing functions that it uses, and its type parameters, for postponed annotations."""
    function = inspect.unwrap(getattr(function, "__func__", function))
    cells = (
        dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        if type(function) is FunctionType
        else {}
    )
    found = {}
    for name, cell in cells.items():
        try:
            found[name] = cell.cell_contents
        except ValueError:  # it is assigned later
            continue
    found |= {each.__name__: each for each in getattr(function, "__type_params__", ())}
    return {**getattr(function, "__globals__", {}), **found} if found else None
