"""The user's own metrics, which servers in this process publish with theirs."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from ctypes import byref, c_double, c_void_p
from typing import Any

from pytriton.inprocess.arguments import encode, mapping, parameters, python_value
from pytriton.inprocess.capi import MetricKind, load
from pytriton.inprocess.exceptions import InvalidTypeError

__all__ = ["Metric", "MetricFamily"]


class MetricFamily:
    """Metrics of one name, with different labels.

    Args:
        kind: Counter or gauge.

    Raises:
        TritonError: The name is used for metrics of another kind.
    """

    def __init__(self, kind: MetricKind, name: str, description: str) -> None:
        if not isinstance(kind, MetricKind):
            raise InvalidTypeError(f"kind is {kind!r}; give MetricKind.COUNTER or MetricKind.GAUGE")
        self.kind = kind
        api, self._pointer = load(), c_void_p()
        api.MetricFamilyNew(byref(self._pointer), kind, encode(name), encode(description))
        weakref.finalize(self, _delete, api.MetricFamilyDelete, self._pointer, os.getpid())


class Metric:
    """One value. ``Server.metrics()`` contains it as long as this object exists.

    Args:
        family: The family that it belongs to.
        labels: Texts by name.

    Raises:
        TritonError: A label is wrong.
    """

    def __init__(self, family: MetricFamily, labels: Mapping[str, str] | None = None) -> None:
        if not isinstance(family, MetricFamily):
            raise InvalidTypeError(f"family is {family!r}; give a MetricFamily")
        labels = mapping("labels", labels)
        for name, label in labels.items():
            encode(name)
            encode(label)
        self._api, self._pointer = load(), c_void_p()
        self._kind = family.kind
        with parameters(self._api, labels) as array:
            self._api.MetricNew(byref(self._pointer), family._pointer, array, len(array))
        # The finalizer refers to the family, which must be deleted last.
        weakref.finalize(self, _delete, self._api.MetricDelete, self._pointer, os.getpid(), family)

    @property
    def kind(self) -> MetricKind:
        """Counter or gauge."""
        return self._kind

    @property
    def value(self) -> float:
        """Its current value."""
        value = c_double()
        self._api.MetricValue(self._pointer, byref(value))
        return value.value

    def increment(self, value: float) -> None:
        """Add to the value. A negative number for a counter is an InvalidArgumentError."""
        self._api.MetricIncrement(self._pointer, _number(value))

    def set_value(self, value: float) -> None:
        """Set the value of a gauge. For a counter it is an UnsupportedError."""
        self._api.MetricSet(self._pointer, _number(value))


def _number(value: object) -> float:
    number = python_value(value)
    if not isinstance(number, (int, float)):
        raise InvalidTypeError(f"value is {value!r}; give a number")
    return float(number)


def _delete(delete: Callable[[c_void_p], Any], pointer: c_void_p, process: int, family: object = None) -> None:
    if process == os.getpid():
        delete(pointer)
