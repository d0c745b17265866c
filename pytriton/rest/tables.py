"""Bodies that are tables of pandas, as clients of MLflow send them, as lists of instances.

::

    {"columns": ["age", "city"], "data": [[31, "Oslo"]]}                              split
    {"dataframe_split": {"index": [0], "columns": ["age", "city"], "data": [[31, "Oslo"]]}}
    {"dataframe_records": [{"age": 31, "city": "Oslo"}]}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytriton.rest.json_arrays import has_member, is_object, plain
from pytriton.rest.models import Model
from pytriton.signature.problems import Path, Problem, ValueMismatchError, shown

__all__ = ["Table", "table_in"]

SPLIT, RECORDS = "dataframe_split", "dataframe_records"
COLUMNS, DATA = "columns", "data"
MEMBERS = {COLUMNS, DATA, "index", "index_names", "column_names"}  # of pandas' "split" and "tight"

Table = tuple[Path, Sequence[Any]]
"""Where the rows are in the body, and the rows, each an object with the values of inputs by name."""


def table_in(body: Any, model: Model, charge_objects: Callable[[], None]) -> Table | None:
    """The rows of a table; None if the body is something else, or inputs of the model have those names.

    Args:
        body: As :func:`pytriton.rest.json_arrays.parse` returned it.
        charge_objects: Is called before a table becomes Python's objects.

    Raises:
        ValueMismatchError: It is no table.
    """
    inputs = model.signature.inputs
    found = next((each for each in (RECORDS, SPLIT) if each not in inputs and has_member(body, each)), None)
    is_bare = is_object(body) and {COLUMNS, DATA} <= {*body.keys()} <= MEMBERS and COLUMNS not in inputs
    if found is None and not is_bare:
        return None
    charge_objects()
    table, path = (plain(body), ()) if found is None else (plain(body[found]), (found,))
    if found == RECORDS:
        return path, _list(table, path, "a list of objects, with one or more")
    if not isinstance(table, Mapping):
        raise ValueMismatchError([Problem(path, "an object with columns and data", shown(table))])
    return _of_split(table, path, model)


def _of_split(table: Mapping[str, Any], path: Path, model: Model) -> Table:
    rows = _list(table.get(DATA), (*path, DATA), "a list of lists, with one or more")
    names = [str(each) for each in _list(table.get(COLUMNS), (*path, COLUMNS), "a list of names")]
    for number, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != len(names):
            got = f"{len(row)} values" if isinstance(row, list) else shown(row)
            raise ValueMismatchError([Problem((*path, DATA, number), f"a list of {len(names)} values", got)])
    only = model.only_input
    if only is not None and "shape" in model.signature.inputs[only] and only not in names:
        return (*path, DATA), [{only: row} for row in rows]  # which has no names for its columns
    return (*path, DATA), [dict(zip(names, row, strict=True)) for row in rows]


def _list(value: Any, path: Path, expected: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise ValueMismatchError([Problem(path, expected, "an empty list" if value == [] else shown(value))])
    return value
