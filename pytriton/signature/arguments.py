"""From the arrays of requests to the arguments of a typed function's calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytriton.proxy.types import RequestBatch
from pytriton.signature.annotations import Load
from pytriton.signature.problems import Problem, Problems, ValueMismatchError, shown
from pytriton.signature.schema import Schema
from pytriton.signature.validation import checks, problems
from pytriton.signature.values import decode_rows

__all__ = ["Arguments", "Row"]

Row = dict[str, Any] | ValueMismatchError
"""The arguments of one call, or the error because of which it is not made."""

NOT_VALID = (ValueError, TypeError, OSError)  # raised by code that makes objects of values, such as __post_init__


@dataclass(frozen=True)
class _Input:
    name: str
    schema: Schema
    load: Load | None
    checked: bool


class Arguments:
    """From arrays to the arguments of calls with Python values.

    Args:
        inputs: Name to schema and load of each.
        batching: Whether the arrays have a batch axis.
    """

    def __init__(
        self, inputs: Mapping[str, tuple[Schema, Load | None]], definitions: Mapping[str, Schema], batching: bool
    ) -> None:
        self._inputs = {name: _Input(name, schema, load, checks(schema)) for name, (schema, load) in inputs.items()}
        self._definitions = definitions
        self._batching = batching

    def of_requests(self, requests: Sequence[Any]) -> list[Row]:
        """The arguments of all rows of some requests, one request after the other."""
        columns = requests.columns() if isinstance(requests, RequestBatch) else None
        if columns is not None:
            return self.of(columns)
        return [row for request in requests for row in self.of(request)]

    def of(self, arrays: Mapping[str, NDArray[Any]]) -> list[Row]:
        """The arguments of a call for each row of some inputs, or their error."""
        names, columns = [], []
        flawed = False
        for name, array in arrays.items():
            known = self._inputs[name]
            values = decode_rows(known.schema, array if self._batching else array[np.newaxis], (name,))
            if known.checked or known.load is not None:
                values = [self._loaded(known, value) for value in values]
            flawed = flawed or any(type(value) is ValueMismatchError for value in values)
            names.append(name)
            columns.append(values)
        if not names:
            return [{}]
        if flawed:
            return [self._row(names, values) for values in zip(*columns, strict=True)]
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]

    def _row(self, names: Sequence[str], values: Sequence[Any]) -> Row:
        found = Problems()
        for value in values:
            if isinstance(value, ValueMismatchError):
                found.add_error(value)
        return found.error() if found else dict(zip(names, values, strict=True))

    def _loaded(self, known: _Input, value: Any) -> Any:
        """The function's object of a value, or its error."""
        if type(value) is ValueMismatchError:
            return value
        if known.checked:
            found = problems(known.schema, value, self._definitions, (known.name,))
            if found:
                return ValueMismatchError(found)
        try:
            return value if known.load is None else known.load(value)
        except NOT_VALID as error:
            return ValueMismatchError(_told(error, known.name, value))


def _told(error: Exception, name: str, value: Any) -> list[Problem]:
    errors = getattr(error, "errors", None)
    if callable(errors):  # of pydantic
        return [
            Problem((name, *each["loc"]), f"what its model takes ({each['msg']})", shown(each.get("input")))
            for each in errors()
        ]
    return [Problem((name,), "a valid value", f"{shown(value)} ({error})")]
