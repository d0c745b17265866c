"""What an inference callable receives and returns.

A batch that travelled as one block keeps its whole-batch arrays beside the requests, so that ``@batch`` need not
concatenate what was contiguous, and the worker need not join what ``@batch`` had to cut:

    RequestBatch.columns()   whole-batch inputs, while no request has been changed
    ResponseBatch.columns()  whole-batch outputs, while no response has been changed

A callable whose outermost decorator is ``@batch`` sees no requests at all, so that none are made, and its outputs stay
whole.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any, Protocol, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from pytriton.proxy.telemetry import traced_span

__all__ = ["Request", "RequestBatch", "Requests", "Response", "ResponseBatch", "Responses", "RowErrors"]

Arrays = dict[str, NDArray[Any]]

CANCELLATION_POLL_S = 0.05


class _Tensors(dict[str, NDArray[Any]]):
    """A dict from name to array. Two are equal if their arrays are."""

    __slots__ = ()

    @property
    def data(self) -> Arrays:
        """The dict itself."""
        return self

    @data.setter
    def data(self, data: Arrays) -> None:
        tensors = dict(data)  # it may be this dict
        self.clear()
        self.update(tensors)

    def __eq__(self, other: object) -> bool:  # that of dict raises, because arrays have no truth value
        if not isinstance(other, dict):
            return NotImplemented
        return self.keys() == other.keys() and all(np.array_equal(array, other[name]) for name, array in self.items())

    def __ne__(self, other: object) -> bool:
        return not self == other


def split_offsets(rows: Sequence[int]) -> list[int]:
    """First row of each request, then the total: ``[2, 1] -> [0, 2, 3]``."""
    offsets = [0]
    for count in rows:
        offsets.append(offsets[-1] + count)
    return offsets


class Details(Protocol):
    """What the requests of a received batch say beside their tensors; each by its index."""

    def of(self, request: int) -> dict[str, Any]:
        """The attributes of a request."""

    def is_cancelled(self, request: int) -> bool:
        """Whether a request is cancelled."""


class Request(_Tensors):
    """One inference request, a dict from input name to array.

    Args:
        data: Inputs in the order of the model's signature; an absent optional input is a missing key. Arrays have
            shape ``(batch, *shape)`` for a batching model, else the shape sent; BYTES arrive as object arrays of
            ``bytes``. Numeric arrays are writable views of transport memory: keeping one keeps its memory.
        parameters: The request's custom parameters and forwarded headers; empty if there are none.
        span: Tracing span of the request, or None.
        requested_output_names: The outputs that the client asked for; None if unknown.
        request_id: What the client calls the request; empty if nothing.
        deadline: When the timeout will have passed that the client set for the server, in :func:`time.monotonic`
            seconds. Counted from when the request left the server's queue, whose part in it the server does not tell.
            None without one.
        correlation_id: Of the sequence that the request belongs to; None if it belongs to none.
        sequence_start: Whether it is the first one of its sequence.
        sequence_end: Whether it is the last one.

    Copies by ``copy()`` and ``|`` keep all of that. Those by ``copy.deepcopy`` and ``pickle`` have neither span nor
    connection to the client, so that :meth:`is_cancelled` stays False.
    """

    __slots__ = (
        "_details",
        "correlation_id",
        "deadline",
        "parameters",
        "request_id",
        "requested_output_names",
        "sequence_end",
        "sequence_start",
        "span",
    )

    def __init__(
        self,
        data: Mapping[str, NDArray[Any]] | None = None,
        parameters: dict[str, str | int | bool | float] | None = None,
        span: Any = None,
        requested_output_names: list[str] | None = None,
        *,
        request_id: str = "",
        deadline: float | None = None,
        correlation_id: int | str | None = None,
        sequence_start: bool = False,
        sequence_end: bool = False,
    ) -> None:
        if data is not None:
            super().__init__(data)
        self.parameters = {} if parameters is None else parameters
        self.span = span
        self.requested_output_names = requested_output_names
        self.request_id = request_id
        self.deadline = deadline
        self.correlation_id = correlation_id
        self.sequence_start = sequence_start
        self.sequence_end = sequence_end
        self._details: tuple[Details, int] | None = None

    @classmethod
    def received(cls, details: Details, count: int) -> list[Request]:
        """The requests of a batch, without inputs. Their attributes are looked up when they are first read."""
        requests = []
        for index in range(count):
            request = cls.__new__(cls)
            request._details = details, index
            requests.append(request)
        return requests

    def __getattr__(self, name: str) -> Any:  # of attributes that are not set
        if name in Request.__slots__ and name != "_details" and self._details is not None:
            details, index = self._details
            for attribute, value in details.of(index).items():
                try:
                    object.__getattribute__(self, attribute)
                except AttributeError:
                    setattr(self, attribute, value)
            return object.__getattribute__(self, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def with_data(self, data: Mapping[str, NDArray[Any]]) -> Request:
        """The same request with other inputs; this one stays as it is."""
        request = Request(data)
        for name in Request.__slots__:
            setattr(request, name, getattr(self, name))
        return request

    def copy(self) -> Request:
        """The same request as another dict of the same arrays."""
        return self.with_data(self)

    __copy__ = copy

    def __or__(self, other: Any) -> Any:
        return self.with_data(dict(self) | other) if isinstance(other, dict) else NotImplemented

    def __reduce__(self) -> tuple[Any, ...]:
        kept = {name: getattr(self, name) for name in Request.__slots__ if name not in ("span", "_details")}
        return Request, (dict(self),), (None, kept)

    def is_cancelled(self) -> bool:
        """Whether nobody waits for the answer any more: the client has cancelled the request, or has gone.

        From any thread, as often as one likes: the server is asked every 0.05 to 0.1 s, for a few hundred
        microseconds. When the request is answered, the last answer stays. False for a request made by hand.
        """
        if self._details is None:
            return False
        details, index = self._details
        return details.is_cancelled(index)

    async def wait_cancelled(self) -> None:
        """Wait until :meth:`is_cancelled`; for one of several requests, as a task beside the work."""
        while not self.is_cancelled():
            await asyncio.sleep(CANCELLATION_POLL_S)

    def traced_span(self, name: str) -> AbstractContextManager[Any]:
        """Make what the block does a child span of the request's; see :func:`pytriton.proxy.telemetry.traced_span`.

        ``with request.traced_span("tokenize"): ...`` does nothing when the request is not traced.
        """
        return traced_span(self, name)

    def __repr__(self) -> str:
        return f"Request(data={dict(self)!r}, parameters={self.parameters!r})"


class Response(_Tensors):
    """One inference response, a dict from output name to array."""

    __slots__ = ()

    def __init__(self, data: Mapping[str, NDArray[Any]] | None = None) -> None:
        super().__init__(data or {})

    def __repr__(self) -> str:
        return f"Response(data={dict(self)!r})"


class _FilledOnUse(list[Any], ABC):
    """A list whose elements get their arrays when it is first used for more than its length.

    A stack of decorators above ``@batch`` passes such lists on without a look into them.
    """

    __slots__ = ("_is_filled",)
    _is_filled: bool

    @abstractmethod
    def _fill(self, elements: Sequence[dict[str, Any]]) -> None:
        """Give the elements their arrays. Two threads may do it at the same time, with equal arrays."""

    def __radd__(self, other: list[Any]) -> list[Any]:
        return [*other, *self]

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return list, ([*self],)


def _fill_first(method: Callable[..., Any]) -> Callable[..., Any]:
    def used(self: _FilledOnUse, /, *args: Any, **kwargs: Any) -> Any:
        if not self._is_filled:
            self._fill([*list.__iter__(self)])
            self._is_filled = True
        return method(self, *args, **kwargs)

    return used


_AS_THEY_ARE = {"__class_getitem__", "__getattribute__", "__init__", "__len__", "__new__", "__sizeof__"}
for _name, _method in vars(list).items():
    if callable(_method) and _name not in _AS_THEY_ARE:
        setattr(_FilledOnUse, _name, _fill_first(_method))


class RequestBatch(_FilledOnUse):
    """The requests of one call whose inputs lie contiguously, one array per input.

    Args:
        inputs: Whole-batch arrays of shape ``(sum(rows), ...)``, in the order of the model's signature.
        rows: Rows of each request, in arrival order.
        requests: The requests, without data of their own: they get views.
    """

    __slots__ = ("_inputs", "_views", "rows")

    def __init__(self, inputs: Arrays, rows: Sequence[int], requests: Sequence[Request]) -> None:
        super().__init__(requests)
        self.rows = rows
        self._inputs = inputs.copy()
        self._views: dict[str, list[NDArray[Any]]] = {}
        self._is_filled = False

    def add(self, inputs: Arrays) -> None:
        """Give the requests these inputs too, as whole-batch arrays."""
        self._inputs |= inputs
        if self._is_filled:
            self._fill([*self], inputs)

    def _fill(self, elements: Sequence[dict[str, Any]], inputs: Arrays | None = None) -> None:
        for name, array in (self._inputs if inputs is None else inputs).items():
            views = self._views[name] = _cut(array, self.rows)
            for request, view in zip(elements, views, strict=True):
                request[name] = view

    def columns(self) -> Arrays | None:
        """The whole-batch arrays, or None once the list or an input of a request was replaced."""
        if self._is_filled:
            if len(self) != len(self.rows):
                return None
            names = len(self._inputs)
            for request in self:
                if len(request) != names:
                    return None
            for name, views in self._views.items():
                for request, view in zip(self, views):  # noqa: B905  (of one length, and checking that again takes long)
                    if request.get(name) is not view:
                        return None
        return self._inputs.copy()


def _cut(array: NDArray[Any], rows: Sequence[int]) -> list[NDArray[Any]]:
    """Views of so many rows each; of a single request, the array itself."""
    if len(rows) == 1:
        return [array]
    if len(rows) == len(array) and 0 not in rows:  # one each: NumPy makes these views faster than by slices
        return list(array[:, np.newaxis])
    return [array[first:end] for first, end in pairwise(split_offsets(rows))]


class ResponseBatch(_FilledOnUse):
    """The responses of one call, cut from whole-batch outputs: a list of dicts from output name to array.

    Args:
        outputs: Arrays of shape ``(sum(rows), ...)``.
        rows: Rows of each response.
    """

    __slots__ = ("_first", "_outputs", "rows")

    def __init__(self, outputs: Arrays, rows: Sequence[int]) -> None:
        super().__init__([{} for _ in rows])
        self._outputs = outputs
        self.rows = rows
        self._first: list[Arrays] = []
        self._is_filled = False

    def _fill(self, elements: Sequence[dict[str, Any]]) -> None:
        for name, array in self._outputs.items():
            for response, view in zip(elements, _cut(array, self.rows), strict=True):
                response[name] = view
        self._first = [dict(response) for response in elements]

    def columns(self) -> Arrays | None:
        """The whole-batch outputs, or None once a response was replaced or changed."""
        if self._is_filled:
            if len(self) != len(self._first):
                return None
            for now, first in zip(self, self._first, strict=True):
                if type(now) is not dict or len(now) != len(first):
                    return None
                for name, array in first.items():
                    if now.get(name) is not array:
                        return None
        return self._outputs


class RowErrors(Exception):
    """Raised by what takes whole-batch inputs, in place of outputs, if some of its rows have failed.

    Args:
        respond: From the rows of each request to a response for each, or the error that it failed with.
    """

    def __init__(self, respond: Callable[[Sequence[int]], list[Any]]) -> None:
        super().__init__("some rows have failed")
        self.respond = respond


Requests = list[Request]
Responses = list[Response]
ResponsesOrError = Responses | Exception
ResponsesNoneOrError = Responses | Exception | None
Scope = dict[str, Any]
