"""Models that pass their requests on to other models of the server: :class:`Split` by weights, and :class:`Shadow`.

Both are bound like callables, to a name that clients call, and have the tensors of the models behind them::

    triton.bind("ranker", Split({"ranker-1": 0.9, "ranker-2": 0.1}, by="user"))
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytriton.composition.handle import ModelHandle
from pytriton.exceptions import PyTritonBadParameterError
from pytriton.introspection import override
from pytriton.logs import get_logger
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.proxy.types import Request
from pytriton.routing import Outputs, Router
from pytriton.worker.metrics import TrafficCount
from pytriton.worker.origin import current_origin

__all__ = ["Shadow", "Split"]

LOGGER = get_logger("pytriton.triton")

Compare = Callable[[Outputs, Outputs], bool]

COPIES_IN_FLIGHT = 16
MOST_WEIGHT = 1e9
REPORTED_DIFFERENCES = 3
MASK = 2**64 - 1


class Split(Router):
    """A model whose requests go to several others, by weights, which may change while it serves.

    Args:
        weights: The share of each model, by name; they need not add up to 1, and 0 is no request.
        by: Name of a parameter of requests, or of a header that ``TritonConfig.http_header_forward_pattern`` forwards:
            requests with the same value go to the same model, as long as the weights stay. Those without it, and all
            without ``by``, go by chance.

    Attributes:
        counts: How many requests went to each model.

    Raises:
        PyTritonBadParameterError: A weight is negative or no number, or all are 0.
    """

    def __init__(self, weights: Mapping[str, float], *, by: str | None = None) -> None:
        super().__init__(tuple(weights))
        self.outcomes = self.targets
        self.by = by
        self.weights = weights

    @property
    @override
    def weights(self) -> dict[str, float]:
        """The share of each model; assign others of the same models at any time, from any thread."""
        return dict(self._weights)

    @weights.setter
    def weights(self, weights: Mapping[str, float]) -> None:
        if not isinstance(weights, Mapping) or {*weights} != {*self.targets}:
            raise PyTritonBadParameterError(
                f"Split has models {', '.join(self.targets)}, and got weights {weights!r:.200}; give each a weight, "
                "which may be 0"
            )
        for name, weight in weights.items():
            if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 <= weight <= MOST_WEIGHT:
                raise PyTritonBadParameterError(
                    f"the weight of model {name!r} is {weight!r:.100}; give a number from 0 to {MOST_WEIGHT:g}"
                )
        if not any(weights.values()):
            raise PyTritonBadParameterError("Split got weights of which none is above 0")
        self._weights = {name: float(weights[name]) for name in self.targets}  # whose order decides where a key belongs
        self._weigh()

    def _key_of(self, request: Request) -> Any:
        """The value that the model is chosen by; names of headers have the letter case that the client has chosen."""
        if self.by is None or self.by in request.parameters:
            return request.parameters.get(self.by or "")
        name = self.by.casefold()
        return next((value for each, value in request.parameters.items() if each.casefold() == name), None)

    @override
    def target_of(self, request: Request) -> str:
        key = self._key_of(request)
        weights = self._weights
        point = (random.random() if key is None else _point(key)) * sum(weights.values())
        last = next(name for name, weight in reversed(weights.items()) if weight)
        for name, weight in weights.items():
            point -= weight
            if point < 0 or name == last:  # the sum may have been rounded up
                break
        self.count(name)
        return name

    @override
    def samples(self) -> Iterator[TrafficCount]:
        for model, counts in self.counts_by_model().items():
            for target, count in counts.items():
                yield TrafficCount("split", (model, target), count)

    @override
    def edge_options(self) -> dict[str, Any] | None:
        if self.by is not None and not self.by.isascii():  # whose letter case only Python knows
            return None
        return {"kind": "split", "by": self.by}

    @override
    def edge_weights(self) -> list[float]:
        return [*self._weights.values()]


def _point(key: object) -> float:
    """A number from 0 to 1 that depends on the key alone, as in ``native/kserve/traffic.cpp``."""
    value = 0xCBF29CE484222325  # FNV-1a, and the last step of MurmurHash3
    for byte in str(key).encode(errors="surrogatepass"):
        value = (value ^ byte) * 0x100000001B3 & MASK
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & MASK
    return ((value ^ value >> 33) >> 11) / 2**53


class Shadow(Router):
    """A model whose requests go to one model, and copies of some to another, whose answers are compared and dropped.

    Copies are sent after the answer, with the lowest priority. While 16 of them are under way, others are dropped, so
    that a slow model does not slow down the one that answers; at the edge likewise those beyond 100 in a second. Models
    that stream are not compared. With a ``compare`` of your own, all requests pass a coroutine of this process.

    Args:
        model: Name of the model that answers.
        to: Name of the model that gets copies.
        share: Of the requests, from 0 to 1.
        compare: Whether two outputs, by name, are the same; called in threads. Default: equal dtypes and shapes, and
            values that are equal, or for floating point numbers within ``rtol`` and ``atol`` as for
            :func:`numpy.allclose`.

    Attributes:
        counts: Copies by what became of them: ``same``, ``different``, ``failed`` and ``dropped``.

    Raises:
        PyTritonBadParameterError: The share is out of range.
    """

    def __init__(
        self,
        model: str,
        *,
        to: str,
        share: float = 1.0,
        compare: Compare | None = None,
        rtol: float = 1e-5,
        atol: float = 1e-8,
    ) -> None:
        super().__init__((model, to))
        self.outcomes = ("same", "different", "failed", "dropped")
        self.share = share
        self._compare = compare or (lambda one, other: _are_close(one, other, rtol, atol))
        self._tolerance = None if compare else {"rtol": rtol, "atol": atol}
        self._copies: set[asyncio.Task[None]] = set()

    @property
    def share(self) -> float:
        """The share of the requests that are copied; assign another one at any time, from any thread."""
        return self._share

    @share.setter
    def share(self, share: float) -> None:
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share <= 1:
            raise PyTritonBadParameterError(f"the share of copies is {share!r}; give a number from 0 to 1")
        self._share = share
        self._weigh()

    @override
    def target_of(self, request: Request) -> str:
        return self.targets[0]

    @override
    def look_up(self, bound: Callable[[str], TritonModelConfig | None]) -> None:
        super().look_up(bound)
        to = bound(self.targets[1])
        self._lowest_priority: int = getattr(to and to.batcher, "priority_levels", 0)
        # The server answers such requests under a lock, so that no other one may be sent then.
        batchers = [each and each.batcher for each in (self._target, to)]
        self._keeps_order = any(getattr(batcher, "preserve_ordering", False) for batcher in batchers)

    @override
    def answered(self, request: Request, outputs: Outputs, handles: Mapping[str, ModelHandle]) -> None:
        if random.random() >= self.share:
            return
        if len(self._copies) >= COPIES_IN_FLIGHT:
            self.count("dropped")
            return
        handle = handles[self.targets[1]].with_options(priority=self._lowest_priority)
        task = asyncio.get_running_loop().create_task(self._copy(request, outputs, handle))
        self._copies.add(task)
        task.add_done_callback(self._copies.discard)

    @override
    def samples(self) -> Iterator[TrafficCount]:
        for model, counts in self.counts_by_model().items():
            for result, count in counts.items():
                yield TrafficCount("shadow", (model, self.targets[1], result), count)

    @override
    def edge_options(self) -> dict[str, Any] | None:
        if self._tolerance is None or not all(map(math.isfinite, self._tolerance.values())) or self._keeps_order:
            return None
        return {"kind": "shadow", "priority": self._lowest_priority, **self._tolerance}

    @override
    def edge_weights(self) -> list[float]:
        return [1.0, 0.0 if self._target.decoupled else float(self._share)]

    async def _copy(self, request: Request, outputs: Outputs, handle: ModelHandle) -> None:
        if (origin := current_origin.get()) is not None:
            current_origin.set(origin.detached())  # for this task alone
        try:
            other = await handle.pass_on(request)
            is_same = await asyncio.to_thread(self._compare, outputs, other)  # others are answered meanwhile
            outcome = "same" if is_same else "different"
        except Exception as error:
            outcome = "failed"
            LOGGER.debug("a copy for model %s failed: %s", handle.name, error)
        self.count(outcome)
        if outcome == "different" and self.counts[outcome] <= REPORTED_DIFFERENCES:
            LOGGER.warning(
                "model %s answered request %r otherwise than %s; Shadow.counts has how often",
                handle.name,
                request.request_id,
                self.targets[0],
            )


def _are_close(one: Outputs, other: Outputs, rtol: float, atol: float) -> bool:
    return one.keys() == other.keys() and all(_is_close(one[name], other[name], rtol, atol) for name in one)


def _is_close(one: NDArray[Any], other: NDArray[Any], rtol: float, atol: float) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.dtype.kind == "f":
        return bool(np.allclose(one, other, rtol, atol, equal_nan=True))
    return bool((one == other).all())
