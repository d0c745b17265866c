"""The options of a model, as given to ``bind``: :class:`ModelConfig` and the dataclasses that it is made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np

from pytriton.exceptions import PyTritonBadParameterError
from pytriton.model_config.recording import Recording
from pytriton.model_config.warmup import ModelWarmup

__all__ = [
    "AllVersions",
    "DeviceKind",
    "DirectStrategy",
    "DynamicBatcher",
    "InstanceGroup",
    "LatencyTarget",
    "LatestVersions",
    "ModelConfig",
    "OldestStrategy",
    "QueuePolicy",
    "RateLimiter",
    "RateLimiterResource",
    "SequenceBatcher",
    "SpecificVersions",
    "TimeoutAction",
    "VersionPolicy",
]

DEFAULT_IDLE_MICROSECONDS = 1_000_000


class DeviceKind(Enum):
    """The device for which the server creates the instances of a model."""

    KIND_AUTO = "KIND_AUTO"
    """A GPU if the server has one, else the CPU."""
    KIND_CPU = "KIND_CPU"
    """The CPU."""
    KIND_GPU = "KIND_GPU"
    """The GPUs of the instance group."""
    KIND_MODEL = "KIND_MODEL"
    """The model decides. Only configurations of models that other programs serve have this kind."""


class TimeoutAction(Enum):
    """What the server does with a request that waited longer than its timeout."""

    REJECT = "REJECT"
    """The client gets an error."""
    DELAY = "DELAY"
    """The request runs after all requests of the same or a higher priority that have not timed out."""


@dataclass
class QueuePolicy:
    """Limits of one queue of the dynamic batcher.

    Args:
        timeout_action: What the server does on timeout.
        default_timeout_microseconds: Longest wait in the queue; 0 is unlimited.
        allow_timeout_override: A request may set a shorter timeout.
        max_queue_size: Requests that may wait; the server rejects further ones. 0 is unlimited.
    """

    timeout_action: TimeoutAction = TimeoutAction.REJECT
    default_timeout_microseconds: int = 0
    allow_timeout_override: bool = False
    max_queue_size: int = 0


@dataclass
class DynamicBatcher:
    """How the server merges waiting requests into one call.

    ``bind`` checks the ranges, because they depend on the model.

    Args:
        max_queue_delay_microseconds: How long a request may wait for others to fill a batch.
        preferred_batch_size: Batch sizes, in rows, for which requests should wait; None or empty leaves it to the
            server.
        preserve_ordering: Send responses in the order of the requests.
        priority_levels: Number of priorities; level 1 is the highest. 0 turns priorities off.
        default_priority_level: Level of requests without one.
        default_queue_policy: Policy of levels without their own; None is unlimited.
        priority_queue_policy: Policy by level; None or empty is the default policy everywhere.

    Raises:
        PyTritonBadParameterError: ``preferred_batch_size`` is not a list, or ``priority_queue_policy`` not a dict.
    """

    max_queue_delay_microseconds: int = 0
    preferred_batch_size: list[int] | None = None
    preserve_ordering: bool = False
    priority_levels: int = 0
    default_priority_level: int = 0
    default_queue_policy: QueuePolicy | None = None
    priority_queue_policy: dict[int, QueuePolicy] | None = None

    def __post_init__(self) -> None:
        policies = self.priority_queue_policy
        if not isinstance(policies, (dict, type(None))):
            raise PyTritonBadParameterError(f"priority_queue_policy must be a dict by level, got {policies!r}")
        self.preferred_batch_size = _list_or_none("preferred_batch_size", self.preferred_batch_size, "[4, 8]")
        self.priority_queue_policy = dict(policies or {}) or None


@dataclass
class LatencyTarget:
    """Merges waiting requests as a :class:`DynamicBatcher` does, so that answers come within a time.

    The proxy learns how long the callable takes for batches of each size, and chooses the sizes from that. A request
    that could not be answered in time fails at once with UNAVAILABLE, over HTTP 503 with ``Retry-After``, as long as
    the callable can meet the target at all. Times count in the server: from when a request is in the model's queue
    until its answer is there. Needs a plain function and the native proxy.

    Args:
        ms: Milliseconds within which requests are to be answered, above 0.
        percentile: Share of the answers that are in time, from 0.5 to 0.999.
    """

    ms: float
    percentile: float = 0.99

    @property
    def preferred_batch_size(self) -> list[int] | None:
        """None, as of a :class:`DynamicBatcher` without preferences."""
        return None

    @property
    def max_queue_delay_microseconds(self) -> int:
        """0: no request waits while a callable is free."""
        return 0


@dataclass(kw_only=True)
class DirectStrategy:
    """Each sequence has a slot in the batch of one model instance, from its first request to its last.

    All requests of a sequence reach the same callable. Each callable has ``max_batch_size`` open sequences, or one
    without batching; further sequences wait until one has ended.

    Args:
        max_queue_delay_microseconds: How long a request may wait for requests of the other slots.
        minimum_slot_utilization: Share of an instance's slots, above 0.0 and up to 1.0, that must have a request
            for a call before the delay is over; 0.0 calls when the first request arrives.
    """

    max_queue_delay_microseconds: int = 0
    minimum_slot_utilization: float = 0.0

    def __post_init__(self) -> None:
        share = self.minimum_slot_utilization
        if isinstance(share, float):  # the server stores single precision; a configuration read back must be equal
            self.minimum_slot_utilization = float(str(np.float32(share)))


@dataclass(kw_only=True)
class OldestStrategy:
    """The server merges requests of different sequences in the order of arrival, as a dynamic batcher does.

    A batch has at most one request of a sequence. All requests of a sequence reach the same callable.

    Args:
        max_candidate_sequences: Open sequences per callable; further sequences wait until one has ended.
        preferred_batch_size: As of :class:`DynamicBatcher`.
        max_queue_delay_microseconds: How long a request may wait for others to fill a batch.
        preserve_ordering: Send responses in the order of the requests.

    Raises:
        PyTritonBadParameterError: ``preferred_batch_size`` is not a list.
    """

    max_candidate_sequences: int
    preferred_batch_size: list[int] | None = None
    max_queue_delay_microseconds: int = 0
    preserve_ordering: bool = False

    def __post_init__(self) -> None:
        self.preferred_batch_size = _list_or_none("preferred_batch_size", self.preferred_batch_size, "[4, 8]")


@dataclass(kw_only=True)
class SequenceBatcher:
    """Batches requests that belong to sequences, in place of a :class:`DynamicBatcher`.

    Clients give each request the correlation id of its sequence, and mark the first request and the last one. The
    server keeps a sequence's requests in order, and sends them all to one callable. ``bind`` checks the ranges.

    Args:
        strategy: How the server puts requests of several sequences into one call.
        max_sequence_idle_microseconds: A sequence without a request for this long ends; its later requests fail.
    """

    strategy: DirectStrategy | OldestStrategy = field(default_factory=DirectStrategy)
    max_sequence_idle_microseconds: int = DEFAULT_IDLE_MICROSECONDS

    @property
    def preferred_batch_size(self) -> list[int] | None:
        """As of :class:`OldestStrategy`; None with another strategy."""
        return self.strategy.preferred_batch_size if isinstance(self.strategy, OldestStrategy) else None

    @property
    def max_queue_delay_microseconds(self) -> int:
        """How long a request may wait for others."""
        return self.strategy.max_queue_delay_microseconds


@dataclass
class RateLimiterResource:
    """A resource that an instance needs while it works.

    Args:
        name: Name of the resource, in any letter case.
        count: Number of units; ``TritonConfig.rate_limit_resource`` sets how many exist.
        is_global: All devices share the units; otherwise each device has its own.
    """

    name: str
    count: int
    is_global: bool = False


@dataclass
class RateLimiter:
    """Limits how many instances work at the same time, across models; needs ``TritonConfig.rate_limit``.

    Args:
        resources: An instance waits until all of them are free.
        priority: Weight of the instance: one of priority 2 runs half as often as one of priority 1. 0 is the server's
            default, 1.

    Raises:
        PyTritonBadParameterError: ``resources`` is not a list of RateLimiterResource.
    """

    resources: list[RateLimiterResource] | None = None
    priority: int = 0

    def __post_init__(self) -> None:
        resources = self.resources or ()
        if not isinstance(resources, (list, tuple)) or not all(isinstance(r, RateLimiterResource) for r in resources):
            raise PyTritonBadParameterError(f"resources must be a list of RateLimiterResource, got {self.resources!r}")
        self.resources = list(resources) or None


@dataclass
class InstanceGroup:
    """Some of a model's instances. Each instance is one callable, in the order of the groups.

    Callables run in your process or in worker processes, whatever the kind. The kind changes how the server counts
    the instances: per device for the rate limiter, and in its metrics.

    Args:
        count: Number of instances, on each of the GPUs if there are any. For ``bind``, None is the number of callables.
        gpus: Numbers of the GPUs, for KIND_GPU.
        host_policy: Name of a policy of ``TritonConfig.host_policy``, for memory and cores of the server's threads.
        rate_limiter: Resources that the instances need while they work.

    Raises:
        PyTritonBadParameterError: ``gpus`` is not a list of numbers.
    """

    count: int | None = None
    kind: DeviceKind = DeviceKind.KIND_CPU
    gpus: list[int] | None = None
    host_policy: str = ""
    rate_limiter: RateLimiter | None = None

    def __post_init__(self) -> None:
        self.gpus = _list_or_none("gpus", self.gpus, "[0, 1]")

    @property
    def devices(self) -> int:
        """Number of devices that have ``count`` instances each."""
        return len(self.gpus or [0])


@dataclass
class AllVersions:
    """The server serves every version."""

    def served(self, versions: Iterable[int]) -> set[int]:
        """The versions that the server serves, among those given."""
        return set(versions)


@dataclass
class LatestVersions:
    """The server serves the versions with the highest numbers."""

    count: int = 1

    def served(self, versions: Iterable[int]) -> set[int]:
        """The versions that the server serves, among those given."""
        return set(sorted(versions)[-self.count :])


@dataclass
class SpecificVersions:
    """The server serves the listed versions.

    Args:
        versions: Their numbers.

    Raises:
        PyTritonBadParameterError: ``versions`` is not a list.
    """

    versions: list[int]

    def __post_init__(self) -> None:
        if not isinstance(self.versions, (list, tuple)):
            raise PyTritonBadParameterError(f"versions must be a list such as [1, 3], got {self.versions!r}")
        self.versions = sorted(self.versions)

    def served(self, versions: Iterable[int]) -> set[int]:
        """The versions that the server serves, among those given."""
        return set(versions) & set(self.versions)


VersionPolicy = AllVersions | LatestVersions | SpecificVersions


@dataclass
class ModelConfig:
    """Options of a model. ``bind`` checks their ranges.

    Args:
        batching: Tensors have a batch axis. False: no batch axis, and ``max_batch_size`` and a DynamicBatcher have no
            effect.
        max_batch_size: Most rows in one call.
        batcher: How the server merges waiting requests; None is one request per call. A LatencyTarget chooses the
            sizes of batches so that answers come in time. A SequenceBatcher keeps requests of a sequence together and
            in order.
        response_cache: The server answers repeated requests from its cache; needs ``TritonConfig.cache_config``.
        decoupled: A request may get zero to many responses: the callable is a generator or async generator that yields
            them. Streaming clients call the model, and plain HTTP through ``generate_stream``.
        model_warmup: Requests that each callable gets, in this process, before the server loads the model. Failures are
            logged, and do not prevent loading.
        isolate_errors: When a call with several merged requests raises, call again with each request alone, so that
            only the faulty ones fail. False: all fail. Requests of sequences always all fail.
        send_traceback: Send clients the callable's traceback, with paths and source lines of the host; otherwise the
            exception's class and message only.
        max_batches_in_flight: Most batches that one instance works on at the same time. Only ``async def`` callables
            and those of decoupled models work on several; further requests wait in the server, which can merge them.
            With a SequenceBatcher it is always 1.
        instance_groups: Host policies, devices and rate limits of the instances, which are the callables in their
            order; None is one group of instances on the CPU.
        version_policy: Which of the bound versions the server serves; the same for all versions of a model.
        proxy: What passes requests from the server to the callable: ``"native"``, a backend of this package, or
            ``"python"``, a model of Triton's Python backend. ``"auto"`` is native wherever it is available.
        batch_cost: What a row costs: the name of an input, whose elements count (of texts, the bytes), or a pair of an
            input and an axis from 1, whose extent counts, such as ``("input_ids", 1)`` for tokens. Requests of
            different shapes are merged then. Needs a plain function and the native proxy.
        max_batch_cost: Most cost of a batch: its rows times the cost of its most costly row, which is what a padded
            batch computes. A request that costs more is a batch of its own.
        record: Record requests from the start, see docs/recording.md; None does not.

    Raises:
        PyTritonBadParameterError: A number is no integer.
    """

    batching: bool = True
    max_batch_size: int = 4
    batcher: DynamicBatcher | LatencyTarget | SequenceBatcher | None = field(default_factory=DynamicBatcher)
    response_cache: bool = False
    decoupled: bool = False
    model_warmup: list[ModelWarmup] | None = None
    isolate_errors: bool = field(default=True, kw_only=True)
    send_traceback: bool = field(default=False, kw_only=True)
    max_batches_in_flight: int = field(default=64, kw_only=True)
    instance_groups: list[InstanceGroup] | None = field(default=None, kw_only=True)
    version_policy: VersionPolicy = field(default_factory=AllVersions, kw_only=True)
    proxy: str = field(default="auto", kw_only=True)
    batch_cost: str | tuple[str, int] | None = field(default=None, kw_only=True)
    max_batch_cost: int | None = field(default=None, kw_only=True)
    record: Recording | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("max_batch_size", "max_batches_in_flight"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise PyTritonBadParameterError(f"{name} must be an integer, got {value!r}")


def _list_or_none(name: str, value: Any, example: str) -> list[Any] | None:
    """A list, or None for an empty one: a server sends empty lists for absent ones, and both must compare equal."""
    if not isinstance(value, (list, tuple, type(None))):
        raise PyTritonBadParameterError(f"{name} must be a list such as {example}, got {value!r}")
    return list(value or ()) or None
