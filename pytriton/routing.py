"""What models that pass their requests on have in common: :class:`pytriton.Split` and :class:`pytriton.Shadow`.

The edge passes requests on itself (``native/kserve/traffic.cpp``); the callable here does so with those that come
another way, such as steps of a ``Pipeline``, and with all requests where the edge cannot.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from pytriton import forks
from pytriton.composition.handle import ModelHandle
from pytriton.composition.traffic_file import FILE_PARAMETER, TrafficFile
from pytriton.exceptions import PyTritonInvalidOperationError, PyTritonValidationError
from pytriton.introspection import override
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

__all__ = ["Outputs", "Router"]

Outputs = dict[str, NDArray[Any]]

LEAST_IN_FLIGHT = 1024  # of a model that only waits


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
