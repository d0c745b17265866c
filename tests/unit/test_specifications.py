"""Each name of the four specifications in tests/specifications exists, and is called as it is specified."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import importlib
import inspect
import warnings
from collections import abc
from collections.abc import Callable
from functools import cache
from types import FunctionType, MethodDescriptorType, ModuleType, WrapperDescriptorType
from typing import Any

import pytest

from tests.server.gpus import HAS_GPU
from tests.specifications.compatibility_tables import DOCUMENT, FAMILIES, Entry, entries, updated

ENTRIES = [entry for family in FAMILIES for entry in entries(family) if entry.state != "cannot"]
MISSING = object()
ANY_DEFAULT = ...
IN_C = MethodDescriptorType, WrapperDescriptorType  # methods of dict, whose parameters have no names


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
        if found is MISSING:  # modules import some when first used; protobuf's classes have them in C
            found = getattr(owner, part, MISSING)
        assert found is not MISSING or has_field(owner, part), f"{owner} has no {part}"
    return found


def has_field(owner: Any, name: str) -> bool:
    """Whether objects of a class get an attribute in its constructor."""
    if dataclasses.is_dataclass(owner) and name in {field.name for field in dataclasses.fields(owner)}:
        return True
    constructors = [vars(each).get("__init__") for each in getattr(owner, "__mro__", ())]
    return any(name in function.__code__.co_names for function in constructors if isinstance(function, FunctionType))


def value_of(node: ast.expr, entry: Entry) -> Any:
    """A default or a constant of the specification, read with the names of the module that it is about."""
    names = {**vars(importlib.import_module("pytriton.inprocess")), **vars(module_of(entry))}
    return eval(compile(ast.Expression(node), "<specification>", "eval"), names)


@pytest.mark.parametrize("module", sorted({entry.module for entry in ENTRIES}))
def test_each_name_of_a_module_is_what_the_specification_says(module: str):
    wrong = {}
    for entry in ENTRIES:
        if entry.module == module:
            try:
                check(entry)
            except (AssertionError, AttributeError, TypeError) as error:
                wrong[entry.name] = str(error)
    assert wrong == {}


def check(entry: Entry) -> None:
    thing = found(entry)
    match entry.node:
        case ast.Assign(value=value):
            assert getattr(thing, "value", thing) == value_of(value, entry)
        case ast.ClassDef(bases=bases):
            assert isinstance(thing, type)
            for base in bases:
                assert issubclass(thing, base_of(ast.unparse(base), entry))
        case ast.FunctionDef(args=arguments) if not isinstance(thing, IN_C):
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
    if not isinstance(owner, type):
        return thing
    if entry.leaf == "__init__":
        return owner
    return thing.__get__(None if isinstance(thing, staticmethod | classmethod) else object(), owner)


@dataclasses.dataclass
class Specified:
    """The parameters of a function: ``defaults`` are those of the optional ones."""

    positional_only: list[str]
    positional: list[str]
    keyword_only: list[str]
    defaults: dict[str, Any]

    @classmethod
    def of(cls, arguments: ast.arguments, entry: Entry) -> Specified:
        groups = arguments.posonlyargs, arguments.args, arguments.kwonlyargs
        only, both, keywords = ([each.arg for each in group if each.arg != "self"] for group in groups)
        optional = dict(zip(reversed([*only, *both]), reversed(arguments.defaults), strict=False))
        optional |= {name: node for name, node in zip(keywords, arguments.kw_defaults, strict=True) if node is not None}
        return cls(only, both, keywords, {name: value_of(node, entry) for name, node in optional.items()})

    def check(self, function: Callable[..., Any]) -> None:
        signature = inspect.signature(function)
        keywords = {name: name for name in [*self.positional, *self.keyword_only]}
        required = {name: name for name in keywords if name not in self.defaults}
        signature.bind(*self.positional_only, **keywords)
        signature.bind(*self.positional_only, **required)
        bound = signature.bind(*self.positional_only, *self.positional, **{name: name for name in self.keyword_only})
        if not any(parameter.kind == parameter.VAR_POSITIONAL for parameter in signature.parameters.values()):
            assert {name: bound.arguments[name] for name in self.positional} == {name: name for name in self.positional}
        for name, default in self.defaults.items():
            if name in signature.parameters and default is not ANY_DEFAULT:
                assert default_of(function, signature.parameters[name]) == default, name


def default_of(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """A parameter's default; of a field that makes a new one each time, such a one."""
    if dataclasses.is_dataclass(function):
        for field in dataclasses.fields(function):
            if field.name == parameter.name and field.default_factory is not dataclasses.MISSING:
                return field.default_factory()
    return parameter.default


def test_the_tables_of_the_compatibility_page_are_up_to_date():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text == updated(text), "run python tests/specifications/compatibility_tables.py --write"


@pytest.mark.parametrize("family", FAMILIES)
def test_what_differs_has_a_reason(family: str):
    assert [entry.name for entry in entries(family) if (entry.state == "works") != (entry.reason == "")] == []
