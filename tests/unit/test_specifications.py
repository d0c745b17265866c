"""Each name of the four specifications in tests/specifications exists, and is called as it is specified."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import importlib
import inspect
import typing
import warnings
from collections import abc
from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType
from typing import Any

import pytest
from migration_table import DOCUMENT, FAMILIES, Entry, entries, updated

from tests.server.gpus import HAS_GPU

ENTRIES = [
    pytest.param(entry, id=f"{entry.module}.{entry.name}")
    for family in FAMILIES
    for entry in entries(family)
    if entry.state != "cannot"
]
MISSING = object()
ANY_DEFAULT = ...
SIGNATURES = {  # of classes in C, which have none
    "pytriton.inprocess.ModelDictionary.__getitem__",
}


@cache
def module_of(entry: Entry) -> ModuleType:
    if entry.module == "tritonclient.utils.cuda_shared_memory" and not HAS_GPU:
        pytest.skip("the module takes the CUDA runtime")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module(entry.module)


def found(entry: Entry) -> Any:
    """What has the name; MISSING if it is a field that only objects have."""
    owner, found = None, module_of(entry)
    for part in entry.name.split("."):
        owner, found = found, inspect.getattr_static(found, part, MISSING)
        if found is MISSING and isinstance(owner, ModuleType):
            found = getattr(owner, part)  # modules import some when first used
        if found is MISSING:
            assert isinstance(owner, type), f"{owner} has no {part}"
            assert has_field(owner, part), f"{owner} has no {part}"
    return found


def has_field(owner: type, name: str) -> bool:
    """Whether objects of a class get an attribute in its constructor."""
    if dataclasses.is_dataclass(owner) and name in {field.name for field in dataclasses.fields(owner)}:
        return True
    return any(name in getattr(vars(each).get("__init__"), "__code__", has_field.__code__).co_names for each in owner.__mro__)


def value_of(node: ast.expr, entry: Entry) -> Any:
    """A default or a constant of the specification, read with the names of the module that it is about."""
    names = {**vars(importlib.import_module("pytriton.inprocess")), **vars(module_of(entry))}
    return eval(compile(ast.Expression(node), "<specification>", "eval"), names)


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_name_is_what_the_specification_says(entry: Entry):
    thing = found(entry)
    match entry.node:
        case ast.Assign(value=value):
            assert getattr(thing, "value", thing) == value_of(value, entry)
        case ast.ClassDef(bases=bases):
            assert isinstance(thing, type)
            for base in bases:
                assert issubclass(thing, base_of(ast.unparse(base), entry))
        case ast.FunctionDef(args=arguments):
            Specified.of(arguments, entry).check(called(thing, entry))


def base_of(name: str, entry: Entry) -> type:
    for module in (module_of(entry), importlib.import_module("pytriton.client.client"), builtins, abc):
        if isinstance(base := getattr(module, name, None), type):
            return base
    raise LookupError(name)


def called(thing: Any, entry: Entry) -> Callable[..., Any]:
    """What a program calls."""
    owner = module_of(entry)
    for part in entry.name.split(".")[:-1]:
        owner = getattr(owner, part)
    if isinstance(owner, type) and entry.leaf == "__init__":
        return owner
    return thing.__get__(object(), owner) if hasattr(thing, "__get__") and isinstance(owner, type) else thing


@dataclasses.dataclass
class Specified:
    """The parameters of a function; ``defaults`` are those of the optional ones."""

    positional: list[str]
    keywords: list[str]
    defaults: dict[str, Any]

    @classmethod
    def of(cls, arguments: ast.arguments, entry: Entry) -> Specified:
        positional = [argument.arg for argument in arguments.args]
        defaults = dict(zip(reversed(positional), reversed(arguments.defaults), strict=False))
        defaults |= {
            argument.arg: default
            for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            if default is not None
        }
        values = {name: value_of(default, entry) for name, default in defaults.items()}
        keywords = [argument.arg for argument in arguments.kwonlyargs]
        return cls([name for name in positional if name != "self"], keywords, values)

    def check(self, function: Callable[..., Any]) -> None:
        signature = inspect.signature(function)
        required = [name for name in [*self.positional, *self.keywords] if name not in self.defaults]
        for calls in self.calls(required):
            signature.bind(*calls[0], **calls[1])
        if all(parameter.kind != parameter.VAR_POSITIONAL for parameter in signature.parameters.values()):
            bound = signature.bind(*self.positional, **{name: name for name in self.keywords})
            assert {name: bound.arguments.get(name) for name in self.positional} == {
                name: name for name in self.positional
            }
        actual = {name: default_of(function, parameter) for name, parameter in signature.parameters.items()}
        known = {name: default for name, default in self.defaults.items() if name in actual}
        assert {name: actual[name] if known[name] is not ANY_DEFAULT else ... for name in known} == known

    def calls(self, required: list[str]) -> Iterator[tuple[list[str], dict[str, str]]]:
        """Arguments by position and by keyword, all of them and only the required ones."""
        keywords = {name: name for name in self.keywords}
        yield self.positional, keywords
        yield [], {**{name: name for name in self.positional}, **keywords}
        yield [], {name: name for name in required}


def default_of(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """A parameter's default; of a field that makes a new one each time, such a one."""
    if dataclasses.is_dataclass(function):
        for field in dataclasses.fields(function):
            if field.name == parameter.name and field.default_factory is not dataclasses.MISSING:
                return field.default_factory()
    return parameter.default


def test_the_tables_of_the_migration_page_are_up_to_date():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text == updated(text), "run python scripts/migration_table.py --write"


@pytest.mark.parametrize("family", FAMILIES)
def test_what_differs_has_a_reason(family: str):
    assert [entry.name for entry in entries(family) if (entry.state == "works") != (entry.reason == "")] == []
