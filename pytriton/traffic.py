"""Models that pass their requests on to other models of the server: :class:`Split` by weights, and :class:`Shadow`.

Both are bound like callables, to a name that clients call, and have the tensors of the models behind them::

    triton.bind("ranker", Split({"ranker-1": 0.9, "ranker-2": 0.1}, by="user"))

The edge passes requests on itself (``native/kserve/traffic.cpp``); the callable here does so with those that come
another way, such as steps of a ``Pipeline``, and with all requests where the edge cannot.
"""

from __future__ import annotations

import asyncio
import math
import random
import secrets
import threading
from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytriton import forks
from pytriton.composition.handle import ModelHandle
from pytriton.composition.traffic_file import FILE_PARAMETER, TrafficFile
from pytriton.exceptions import PyTritonBadParameterError, PyTritonInvalidOperationError, PyTritonValidationError
from pytriton.introspection import override
from pytriton.logs import get_logger
from pytriton.model_config import ModelConfig, SequenceBatcher, Tensor
from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from pytriton.pool.pool import Infer, ServedModel, WorkerPool, Workers
from pytriton.pool.threads import ThreadWorkerPool
from pytriton.proxy.types import Request
from pytriton.signature.derive import Derived
from pytriton.signature.examples import Example
from pytriton.signature.schema import Signature
from pytriton.signature.served import OwnForm
from pytriton.worker.context import current_binding
from pytriton.worker.metrics import TrafficCount
from pytriton.worker.origin import current_origin

__all__ = ["Shadow", "Split"]

LOGGER = get_logger("pytriton.triton")

Outputs = dict[str, NDArray[Any]]
Compare = Callable[[Outputs, Outputs], bool]

LEAST_IN_FLIGHT = 1024  # of a model that only waits
COPIES_IN_FLIGHT = 16
MOST_WEIGHT = 1e9
REPORTED_DIFFERENCES = 3
MASK = 2**64 - 1


class Router(Workers):
    """A model that passes requests on to others, which are bound before it.

    Attributes:
        targets: Their names; all have the same tensors.
        outcomes: What is counted.
    """

    targets: tuple[str, ...]
    outcomes: tuple[str, ...]

    def __init__(self, targets: Sequence[str]) -> None:
        self.targets = tuple(targets)
        self._counted: defaultdict[str, Counter[str]] = defaultdict(Counter)  # in this process, by the router's model
        self._files: list[tuple[str, TrafficFile]] = []  # what the edge counts, for each time that this was bound
        self._counted_before: defaultdict[str, Counter[str]] = defaultdict(Counter)  # in files that are closed
        self._changing = threading.RLock()
        forks.register(self)

    def after_fork(self) -> None:
        """In a forked child, leave the files to the parent."""
        self._files, self._changing = [], threading.RLock()

    @property
    def weights(self) -> Mapping[str, float]:
        """As :attr:`Traffic.weights`."""
        return {}

    @weights.setter
    def weights(self, weights: Mapping[str, float]) -> None:
        raise PyTritonInvalidOperationError(f"{type(self).__name__} has no weights")

    @property
    def counts(self) -> Counter[str]:
        """How many requests had which outcome."""
        return sum(self.counts_by_model().values(), Counter[str]())

    def counts_by_model(self) -> dict[str, Counter[str]]:
        """The same, by the name to which this is bound."""
        with self._changing:
            found = {model: Counter(counts) for model, counts in [*self._counted.items()]}
            for model, counts in self._counted_before.items():
                found.setdefault(model, Counter()).update(counts)
            for model, file in self._files:
                found.setdefault(model, Counter()).update(self._counts_in(file))
        return found

    def _counts_in(self, file: TrafficFile) -> dict[str, int]:
        return dict(zip(self.outcomes, file.counts(), strict=True))

    def counted(self) -> dict[str, int]:
        """As :meth:`Traffic.counted`."""
        return dict(self.counts)

    def count(self, outcome: str) -> None:
        """Count a request; in the callable, or a task of it."""
        binding = current_binding.get()
        self._counted["" if binding is None else binding.model_config.model_name][outcome] += 1

    @abstractmethod
    def samples(self) -> Iterator[TrafficCount]:
        """The counts as metrics."""

    @abstractmethod
    def edge_options(self) -> dict[str, Any] | None:
        """What the edge has to know beside the targets and their weights; None if it cannot pass requests on."""

    @abstractmethod
    def edge_weights(self) -> list[float]:
        """The weights of the targets, as the edge reads them."""

    def tell_edge(self, model: ServedModel, sockets: Path) -> TrafficFile | None:
        """Have the edge pass requests on, once the file is open.

        Args:
            model: To whose name this is bound.
            sockets: Path of its sockets less their ``.<instance>`` suffix.

        Returns:
            What the edge reads; None if it cannot pass requests on.
        """
        options, config = self.edge_options(), model.config
        if options is None or config.response_cache is not None:
            return None
        options |= {"model": config.model_name, "version": config.model_version, "targets": self.targets}
        path = Path(f"{sockets}.{secrets.token_hex(8)}.traffic")
        with self._changing:
            file = TrafficFile(path, options, self.edge_weights(), len(self.outcomes))
            for name, before in self._files:
                if before.is_closed:
                    self._counted_before[name].update(self._counts_in(before))
            self._files = [each for each in self._files if not each[1].is_closed] + [(config.model_name, file)]
        return file

    def _weigh(self) -> None:
        """Have the edge use the weights of now."""
        with self._changing:
            for _, file in self._files:
                file.weigh(self.edge_weights())

    @override
    def instance_count(self) -> int:
        return 1

    @override
    def look_up(self, bound: Callable[[str], TritonModelConfig | None]) -> None:
        found = {name: bound(name) for name in self.targets}
        for name, config in found.items():
            if config is None:
                raise PyTritonValidationError(
                    f"{type(self).__name__} has model {name!r}, which is not bound; bind it first"
                )
        first, *others = [config for config in found.values() if config is not None]
        if sequences := [each.model_name for each in (first, *others) if isinstance(each.batcher, SequenceBatcher)]:
            raise PyTritonValidationError(
                f"model {sequences[0]!r} has sequences, which a {type(self).__name__} does not keep together; pass "
                "models without a SequenceBatcher"
            )
        for other in others:
            if _form(other) != _form(first):
                raise PyTritonValidationError(
                    f"models {first.model_name!r} and {other.model_name!r} differ in tensors, batching or streaming, "
                    f"so that one {type(self).__name__} cannot stand for both"
                )
        self._target = first

    @override
    def derive(self, name: str, version: int, config: ModelConfig, examples: Sequence[Example]) -> Derived:
        target = self._target
        if name in self.targets:
            raise PyTritonValidationError(f"model {name!r} would pass requests on to itself; give it another name")
        config = replace(
            config,
            batching=target.batching,
            max_batch_size=target.max_batch_size,
            decoupled=target.decoupled,
            batcher=None,  # the targets have batchers
            max_batches_in_flight=max(config.max_batches_in_flight, LEAST_IN_FLIGHT),
        )
        return Derived(_tensors(target.inputs), _tensors(target.outputs), config, Signature.of(target))

    @override
    def pool(self, model: ServedModel) -> WorkerPool:
        name, connector = model.config.model_name, model.context.connector
        handles = {target: ModelHandle(target, name, connector, is_async=True) for target in self.targets}
        return _RouterPool(self, _Passing(self, handles, model.config.decoupled), model)

    @abstractmethod
    def target_of(self, request: Request) -> str:
        """The model that answers a request."""

    def answered(self, request: Request, outputs: Outputs, handles: Mapping[str, ModelHandle]) -> None:
        """Called when a request is answered; not for models that stream."""


def _tensors(specs: Sequence[TensorSpec] | None) -> list[Tensor]:
    return [
        Tensor(each.shape, each.dtype, each.name, each.optional, format=each.format, labels=each.labels)
        for each in specs or ()
    ]


def _form(config: TritonModelConfig) -> tuple[Any, ...]:
    """What models behind one name have in common."""
    tensors = [
        (spec.name, spec.dtype, spec.shape, spec.optional) for spec in (*(config.inputs or ()), *(config.outputs or ()))
    ]
    return tensors, config.batching, config.decoupled


class _RouterPool(ThreadWorkerPool):
    """The callable of a router, for requests that the edge does not pass on."""

    def __init__(self, router: Router, passing: _Passing, model: ServedModel) -> None:
        super().__init__([passing], model)
        self.callees, self.traffic = frozenset(router.targets), router
        self._router = router
        self._file: TrafficFile | None = None
        self._is_rebound = False
        self._observing = threading.Lock()

    @override
    def start(self, sockets: Path, on_disconnect: Callable[[], None], on_unrecoverable: Callable[[], None]) -> bool:
        self._file = self._router.tell_edge(self.model, sockets)
        if self._file is not None:
            self.parameters = {FILE_PARAMETER: self._file.path.name}
        self.model.observation.follow(self._observe)
        self._observe()
        return super().start(sockets, on_disconnect, on_unrecoverable)

    def _observe(self) -> None:
        observation = self.model.observation
        if observation.metrics is not None:
            observation.metrics.add_traffic(self._router.samples)
        with self._observing:
            if self._file is not None:
                self._file.open(not self._is_rebound and observation.recording(self.model.config) is None)

    @override
    def rebind(self, infer: Infer) -> None:
        super().rebind(infer)
        self._is_rebound = True  # to a callable, which the edge cannot take the place of
        self._observe()

    @override
    def close(self) -> None:
        self.model.observation.unfollow(self._observe)
        if self._file is not None:
            self._file.close()
        super().close()


class _Passing(OwnForm):
    """The callable of a router."""

    def __init__(self, router: Router, handles: Mapping[str, ModelHandle], decoupled: bool) -> None:
        self._router = router
        self._handles = handles
        self._decoupled = decoupled

    @override
    def derived(self, config: Any) -> Derived:
        return self._router.derive("", 1, config, ())

    @override
    def served(self) -> Callable[..., Any]:
        return self._stream if self._decoupled else self._answer

    @override
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.served()(*args, **kwargs)

    async def _answer(self, requests: Sequence[Request]) -> list[Any]:
        return [*await asyncio.gather(*map(self._pass_on, requests), return_exceptions=True)]

    async def _pass_on(self, request: Request) -> Outputs:
        outputs: Outputs = await self._target(request).pass_on(request)
        self._router.answered(request, outputs, self._handles)
        return outputs

    async def _stream(self, requests: Sequence[Request]) -> AsyncGenerator[list[Outputs], None]:
        (request,) = requests  # there is no batcher
        async for outputs in self._target(request).pass_on(request):
            yield [outputs]

    def _target(self, request: Request) -> ModelHandle:
        return self._handles[self._router.target_of(request)]


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
