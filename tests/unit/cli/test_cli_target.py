"""Finding what ``pytriton serve`` serves; tests/server/test_cli_serve.py serves it."""

import sys
from itertools import count

import pytest

from pytriton.cli.errors import ProgramError, TargetError
from pytriton.cli.target import Target, is_typed
from pytriton.exceptions import PyTritonInvalidOperationError

NUMBERS = count()


@pytest.fixture
def module(tmp_path, monkeypatch):
    """``module(source)``: write a module, and return its name, which is new each time."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(source, name=None):
        name = name or f"served_{next(NUMBERS)}"
        (tmp_path / f"{name}.py").write_text(source)
        return name

    yield write
    for name in [name for name in sys.modules if name.startswith("served_")]:
        del sys.modules[name]


def test_a_target_is_read_with_dots_on_both_sides():
    assert Target.parse("package.models:Server.bind") == Target("package.models", "Server.bind")
    assert str(Target.parse("models:bind")) == "models:bind"


@pytest.mark.parametrize("text", ["models", "models:", ":bind", "my-models:bind", "a..b:c", "models:1"])
def test_other_texts_are_refused(text):
    with pytest.raises(TargetError, match="not of the form module:object"):
        Target.parse(text)


def test_a_file_is_refused_with_the_module_to_name_instead():
    with pytest.raises(TargetError, match=r"name the module instead: folder\.models:bind"):
        Target.parse("folder/models.py:bind")


def test_the_folder_of_a_module_is_found_without_importing_it(module, tmp_path):
    name = module("raise RuntimeError('imported')")
    assert Target(name, "bind").folder() == tmp_path
    assert name not in sys.modules


def test_the_folder_of_a_module_in_a_package_is_the_package(module, tmp_path):
    (tmp_path / "served_package").mkdir()
    (tmp_path / "served_package" / "__init__.py").write_text("raise RuntimeError('imported')")
    assert Target("served_package.deep.models", "bind").folder() == tmp_path / "served_package"


@pytest.mark.parametrize("name", ["no_such_module", "sys"])
def test_a_module_without_source_has_no_folder(name):
    with pytest.raises(TargetError, match=f"no module '{name}'"):
        Target(name, "bind").folder()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "has no 'bind'"),
        ("bind = 3", "is a int; it must be a Triton object"),
        ("async def bind(triton): pass", "is a coroutine function"),
        ("def bind(triton, config): pass", "has the parameters triton, config; it must have one"),
        ("def bind(): return 3", "returned a int"),
        ("def bind(*models, **options): pass", "returned a NoneType"),
        ("bind = dict", "returned a dict"),
    ],
)
def test_an_object_that_cannot_be_served_is_refused(source, message, module):
    with pytest.raises(TargetError, match=message):
        Target(module(source), "bind").load()


@pytest.mark.parametrize("name", ["no_such_module", "no_such.module", "json.no_such"])
def test_a_missing_module_is_named(name):
    with pytest.raises(TargetError, match=f"there is no module '{name}'"):
        Target(name, "bind").load()


def test_a_failing_module_is_told_by_its_traceback_without_ours(module):
    name = module("def fail():\n    raise KeyError('weights')\nfail()")
    with pytest.raises(ProgramError) as raised:
        Target(name, "bind").load()
    lines = str(raised.value).splitlines()
    assert lines[:2] == [f"{name}:bind failed.", "Traceback (most recent call last):"]
    assert f"{name}.py" in lines[2]
    assert lines[-1] == "KeyError: 'weights'"


def test_a_module_that_misses_another_one_names_that(module):
    with pytest.raises(ProgramError, match="ModuleNotFoundError: No module named 'no_such_library'"):
        Target(module("import no_such_library"), "bind").load()


TYPED = """
from collections.abc import Iterator
from pytriton import Triton

def shout(text: str) -> str:
    return text.upper()

def tell(prompt: str, count: int = 3) -> Iterator[str]:
    yield prompt

def helper(text):
    return text

def returns_nothing(text: str) -> None:
    pass

def _private(text: str) -> str:
    return text

def bind(triton: Triton) -> None:
    triton.bind(shout)
"""


def test_a_function_with_annotations_is_served_as_a_model(module):
    triton = Target(module(TYPED), "shout").load()
    with pytest.raises(PyTritonInvalidOperationError, match="bound models are: 'shout'"):
        triton.unbind("other")
    triton.__exit__()


def test_all_functions_with_annotations_of_a_file_are_served(module):
    target = Target.parse(f"{module(TYPED)}.py")
    assert str(target).endswith(".py")
    assert Target.parse(str(target)) == target
    assert names_of(target) == ["shout", "tell"]


def names_of(target):
    found = target.find()
    return [name for name, value in vars(found).items() if is_typed(value) and value.__module__ == target.module]


def test_a_file_without_functions_with_annotations_is_an_error(module):
    with pytest.raises(TargetError, match="has no functions with annotations"):
        Target.parse(f"{module('x = 3')}.py").load()


def test_a_function_whose_tensors_cannot_be_derived_is_told(module):
    with pytest.raises(TargetError, match="complex is not a supported type"):
        Target(module("def f(x: complex) -> int: ..."), "f").load()
