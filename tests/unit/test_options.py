"""What options may be, for each option of each table."""

from dataclasses import fields
from pathlib import Path

import pytest

from pytriton import options
from pytriton.config import TritonConfig
from pytriton.exceptions import PyTritonBadParameterError, PyTritonValidationError
from pytriton.options import FLAG, ITEMS, PATH, SECONDS, TEXT, TEXTS, choice, integer, with_none
from pytriton.pool.processes import Processes
from pytriton.rest import RestConfig

TABLES = {RestConfig: RestConfig, Processes: lambda **given: Processes(print, **given)}
OPTIONS = [(table, each.name) for table in TABLES for each in fields(table) if "kind" in each.metadata]
NUMBERS = [
    (table, name)
    for table, name in OPTIONS
    if options.kinds_of(table)[name].written.startswith(("an integer", "a positive number"))
]


def checked(table, **given):
    options.check(TABLES[table](**given))


@pytest.mark.parametrize(("table", "name"), NUMBERS)
@pytest.mark.parametrize("value", [True, False, "1", -1, float("nan"), [1]])
def test_a_number_is_no_boolean_no_text_and_not_below_0(table, name, value):
    with pytest.raises(PyTritonBadParameterError, match=f"^{name} must be .*, got "):
        checked(table, **{name: value})


@pytest.mark.parametrize("name", [name for name, kind in options.kinds_of(TritonConfig).items() if kind.accepts(1)])
@pytest.mark.parametrize("value", [True, False, -1, 0.5, float("nan"), [1], b"1", "one"])
def test_a_number_of_the_server_is_no_boolean_and_no_part_of_a_number(name, value):
    with pytest.raises(PyTritonValidationError, match=f"^{name}: expected an integer .*, got "):
        TritonConfig(**{name: value})


@pytest.mark.parametrize(("table", "name"), OPTIONS)
def test_a_default_is_of_its_kind_and_an_object_of_none(table, name):
    checked(table)
    with pytest.raises(PyTritonBadParameterError, match=f"^{name} must be "):
        checked(table, **{name: b"?"} if name not in ("cors", "hosts") else {name: [b"?"]})


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (integer(), [1, 10**9], [0, 1.0, None]),
        (integer(0, 3, "auto"), [0, 3, "auto"], [4, "other"]),
        (with_none(integer()), [None, 1], [0]),
        (SECONDS, [0.001, 1], [0, float("inf"), None]),
        (FLAG, [True, False], [1, 0, "true", None]),
        (TEXT, ["", "a"], [1, None, b"a", "a\0"]),
        (PATH, [Path("a")], ["a", None]),
        (TEXTS, [[], ["a"], ("a", "b")], ["a", [1]]),
        (ITEMS, [[], ["a=1", "b,c=2"]], ["a=1", ("a=1",), [1], None]),
        (choice("a", "b"), ["a", "b"], ["c", "", None, 1]),
    ],
)
def test_a_kind_accepts_its_values_alone(kind, good, bad):
    assert [value for value in good if not kind.accepts(value)] == []
    assert [value for value in bad if kind.accepts(value)] == []
