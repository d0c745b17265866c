"""Batching, queueing and device options of a model."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pytriton.exceptions import PyTritonBadParameterError
from pytriton.model_config.warmup import ModelWarmup, WarmupInput, generate_warmup_data, generate_warmup_requests

__all__ = [
    "DeviceKind",
    "DynamicBatcher",
    "ModelWarmup",
    "QueuePolicy",
    "TimeoutAction",
    "WarmupInput",
    "generate_warmup_data",
    "generate_warmup_requests",
]


class DeviceKind(Enum):
    """Where the server places the instances of a model."""

    KIND_AUTO = "KIND_AUTO"
    """A GPU if the server has one, else the CPU."""
    KIND_CPU = "KIND_CPU"
    KIND_GPU = "KIND_GPU"
    KIND_MODEL = "KIND_MODEL"
    """The model decides; only found in configurations of models that others serve."""


class TimeoutAction(Enum):
    """What happens to a request that waited longer than its timeout."""

    REJECT = "REJECT"
    """The client gets an error."""
    DELAY = "DELAY"
    """It runs after all requests of the same or a higher priority that have not timed out."""


@dataclass
class QueuePolicy:
    """Limits of one queue of the dynamic batcher.

    Args:
        timeout_action: What happens on timeout.
        default_timeout_microseconds: Longest wait in the queue; 0 is unlimited.
        allow_timeout_override: A request may bring a shorter timeout of its own.
        max_queue_size: Requests that may wait; further ones are rejected. 0 is unlimited.
    """

    timeout_action: TimeoutAction = TimeoutAction.REJECT
    default_timeout_microseconds: int = 0
    allow_timeout_override: bool = False
    max_queue_size: int = 0


@dataclass
class DynamicBatcher:
    """How the server merges waiting requests into one call.

    Ranges are checked by :func:`pytriton.model_config.validation.validate`, because they depend on the model.

    Args:
        max_queue_delay_microseconds: How long a request may wait for others to fill a batch.
        preferred_batch_size: Sizes, in rows, that are worth waiting for; None or empty leaves it to the server.
        preserve_ordering: Responses leave in the order in which their requests came.
        priority_levels: Number of priorities; level 1 is the highest. 0 turns priorities off.
        default_priority_level: Level of requests that name none.
        default_queue_policy: Policy of levels without one of their own; None is unlimited.
        priority_queue_policy: Policy by level; None or empty is the default policy everywhere.

    Raises:
        PyTritonBadParameterError: ``preferred_batch_size`` is no list, or ``priority_queue_policy`` no dict.
    """

    max_queue_delay_microseconds: int = 0
    preferred_batch_size: list[int] | None = None
    preserve_ordering: bool = False
    priority_levels: int = 0
    default_priority_level: int = 0
    default_queue_policy: QueuePolicy | None = None
    priority_queue_policy: dict[int, QueuePolicy] | None = None

    def __post_init__(self) -> None:
        sizes, policies = self.preferred_batch_size, self.priority_queue_policy
        if not isinstance(sizes, (list, tuple, type(None))):
            raise PyTritonBadParameterError(f"preferred_batch_size must be a list such as [4, 8], got {sizes!r}")
        if not isinstance(policies, (dict, type(None))):
            raise PyTritonBadParameterError(f"priority_queue_policy must be a dict by level, got {policies!r}")
        # A server sends empty collections back for absent ones; both must compare equal.
        self.preferred_batch_size = list(sizes or ()) or None
        self.priority_queue_policy = dict(policies or {}) or None
