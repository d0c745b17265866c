"""The target of ``pytriton serve``: finds an object in a module, and makes a ``Triton`` of it."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from traceback import format_exception
from typing import Any

from pytriton.base import TritonBase
from pytriton.cli.errors import ProgramError, TargetError
from pytriton.exceptions import PyTritonServerError, PyTritonValidationError
from pytriton.introspection import signature_of
from pytriton.security import TritonSecurityConfig
from pytriton.signature.functions import BATCH, SAMPLE, describe, name_of
from pytriton.triton import Triton
from pytriton.workers import Processes

__all__ = ["Target", "program_traceback"]

OURS = (str(Path(__file__).parent), importlib.__file__, "<frozen importlib")


@dataclass(frozen=True)
class Target:
    """An object in a module, ``module:object`` on the command line.

    Args:
        module: Its name, with dots for a module in a package.
        attribute: Name of the object in it, with dots for an attribute of it.
    """

    module: str
    attribute: str

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read ``module:object``.

        Raises:
            TargetError: It is something else.
        """
        module, _, attribute = text.partition(":")
        if module.endswith(".py") and "/" not in module and not attribute:
            return cls(module.removesuffix(".py"), "")  # all typed functions in it
        if module.endswith(".py") or "/" in module:
            name = ".".join(Path(module).with_suffix("").parts)
            raise TargetError(
                f"{module!r} is a file; name the module instead: {name}:{attribute or 'OBJECT'}, and its folder "
                "with --app-dir if it is not this one"
            )
        if not all(part.isidentifier() for name in (module, attribute) for part in name.split(".")):
            raise TargetError(f"{text!r} is not of the form module:object, such as models:bind_all")
        return cls(module, attribute)

    def folder(self) -> Path:
        """The folder whose sources the module is made of: its package's, else its own. Imports nothing.

        Raises:
            TargetError: There is no such module.
        """
        top = self.module.partition(".")[0]
        spec = importlib.util.find_spec(top)
        if spec is not None and spec.submodule_search_locations:
            return Path(next(iter(spec.submodule_search_locations)))
        if spec is None or spec.origin is None or not Path(spec.origin).is_file():
            raise self._missing()
        return Path(spec.origin).parent

    def load(self, access_token: str | None = None, workers: int | None = None) -> TritonBase:
        """Import the module and make what can serve of the object: a ``Triton`` or a ``RemoteTriton``.

        Args:
            access_token: Of the ``Triton`` that a function gets to bind to; None makes a random one.
            workers: Worker processes for each function with annotations; None calls it in this process.

        Raises:
            TargetError: There is no such object, or it cannot be served; or ``workers`` are given for another object.
            PyTritonServerError: No server can be launched here with these options.
            ProgramError: The module or the object raised something else.
        """
        try:
            return self._load(access_token, workers)
        except (TargetError, PyTritonServerError):
            raise
        except Exception as error:
            raise ProgramError(f"{self} failed.\n{program_traceback(error)}") from error

    def _load(self, access_token: str | None, workers: int | None) -> TritonBase:
        found = self.find()
        if not self.attribute:
            functions = [each for each in vars(found).values() if is_typed(each) and each.__module__ == self.module]
            if not functions:
                raise TargetError(
                    f"{self.module}.py has no functions with annotations for all parameters and the result; add them, "
                    "or write module:object"
                )
            return self._bound(functions, access_token, workers)
        if not isinstance(found, TritonBase) and is_typed(found):
            return self._bound([found], access_token, workers)
        if workers is not None:
            raise TargetError(
                f"--workers is for functions with annotations, and {self} is none; let the program bind "
                "Processes(factory, count=...)"
            )
        if isinstance(found, TritonBase):
            return found
        if not callable(found):
            raise TargetError(
                f"{self} is a {type(found).__name__}; it must be a Triton object, a function that returns one, or a "
                "function that takes one and binds models to it"
            )
        if inspect.iscoroutinefunction(found):
            raise TargetError(f"{self} is a coroutine function; make it a plain one")
        return self._given(found, access_token) if _required(found) else self._returned(found())

    def find(self) -> Any:
        """Import the module, and return the object; without a name of one, the module.

        Raises:
            TargetError: There is no such module or object.
            Exception: What the module raised.
        """
        try:
            module = importlib.import_module(self.module)
        except ModuleNotFoundError as error:
            if error.name and f"{self.module}.".startswith(f"{error.name}."):
                raise self._missing() from error
            raise
        try:
            return attrgetter(self.attribute)(module) if self.attribute else module
        except AttributeError as error:
            raise TargetError(f"module {self.module!r} has no {self.attribute!r}") from error

    def _bound(
        self, functions: Sequence[Callable[..., Any]], access_token: str | None, workers: int | None
    ) -> TritonBase:
        """A server of typed functions, each under its own name."""
        triton = Triton(security_config=TritonSecurityConfig(access_token=access_token))
        try:
            for function in functions:
                if workers is None:
                    triton.bind(function)
                else:
                    triton.bind(name_of(function), Processes(partial(_same, function), count=workers))
        except PyTritonValidationError as error:
            raise TargetError(str(error)) from error
        return triton

    def _given(self, bind: Callable[..., Any], access_token: str | None) -> TritonBase:
        names = _required(bind)
        if len(names) > 1:
            raise TargetError(f"{self} has the parameters {', '.join(names)}; it must have one, the Triton to bind to")
        triton = Triton(security_config=TritonSecurityConfig(access_token=access_token))
        bind(triton)
        return triton

    def _returned(self, result: object) -> TritonBase:
        if not isinstance(result, TritonBase):
            raise TargetError(
                f"{self} returned a {type(result).__name__}; without parameters it must return a Triton object. To "
                "bind models to one that is made for it, give it a parameter"
            )
        return result

    def _missing(self) -> TargetError:
        where = sys.path[0] or Path.cwd()
        return TargetError(f"there is no module {self.module!r} in {where}, nor installed; see --app-dir")

    def __str__(self) -> str:
        return f"{self.module}:{self.attribute}" if self.attribute else f"{self.module}.py"


def is_typed(found: object) -> bool:
    """Whether it is a typed function to serve: its annotations are complete, and none is a Triton."""
    if not callable(found) or isinstance(found, type) or getattr(found, "__name__", "_").startswith("_"):
        return False
    try:
        described = describe(found)
    except PyTritonValidationError:
        return False
    hints = described.hints.values()
    of_triton = any(isinstance(hint, type) and issubclass(hint, TritonBase) for hint in hints)
    is_annotated = "return" in described.hints and described.hints.keys() >= described.parameters.keys()
    return (
        not of_triton
        and described.result not in (None, type(None))
        and (is_annotated or described.passes in (BATCH, SAMPLE))
    )


def _same(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes the callable of a worker process, which imports its module."""
    return function


def _required(function: Callable[..., Any]) -> list[str]:
    """Names of the parameters that a call must pass."""
    try:
        parameters = signature_of(function).parameters.values()
    except ValueError:  # some built-in classes do not say
        return []
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each.name for each in parameters if each.default is each.empty and each.kind not in optional]


def program_traceback(error: BaseException) -> str:
    """The traceback from the first frame of the program's own code."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(OURS):
        traceback = traceback.tb_next
    return "".join(format_exception(type(error), error, traceback)).rstrip()
