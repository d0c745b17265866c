"""What options may be, for each option of each table."""

from dataclasses import fields

import pytest

from pytriton import options
from pytriton.exceptions import PyTritonBadParameterError
from pytriton.options import FLAG, SECONDS, TEXTS, integer, with_none
from pytriton.pool.processes import Processes
from pytriton.rest import RestConfig

TABLES = {RestConfig: RestConfig, Processes: lambda **given: Processes(print, **given)}
OPTIONS = [(table, each.name) for table in TABLES for each in fields(table) if "kind" in each.metadata]
NUMBERS = [
    (table, name)
    for table, name in OPTIONS
    if {field.name: field for field in fields(table)}[name].metadata["kind"].written in ("an integer", "a number")
]


def checked(table, **given):
    options.check(TABLES[table](**given))


@pytest.mark.parametrize(("table", "name"), NUMBERS)
@pytest.mark.parametrize("value", [True, False, "1", -1, float("nan"), [1]])
def test_a_number_is_no_boolean_no_text_and_not_below_0(table, name, value):
    with pytest.raises(PyTritonBadParameterError, match=f"^{name} must be .*, got "):
        checked(table, **{name: value})


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
        (TEXTS, [[], ["a"], ("a", "b")], ["a", [1]]),
    ],
)
def test_a_kind_accepts_its_values_alone(kind, good, bad):
    assert [value for value in good if not kind.accepts(value)] == []
    assert [value for value in bad if kind.accepts(value)] == []
