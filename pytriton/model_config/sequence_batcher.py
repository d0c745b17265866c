"""How the server batches the requests of sequences, which must reach the same state one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pytriton.exceptions import PyTritonBadParameterError

__all__ = ["DirectStrategy", "OldestStrategy", "SequenceBatcher"]

DEFAULT_IDLE_MICROSECONDS = 1_000_000


@dataclass(kw_only=True)
class DirectStrategy:
    """Each sequence has a slot in the batch of one model instance, from its first request to its last.

    All requests of a sequence reach the same callable. ``max_batch_size`` sequences per callable are open at once, one
    without batching; further ones wait until one has ended.

    Args:
        max_queue_delay_microseconds: How long a request may wait for requests of the other slots.
        minimum_slot_utilization: Share of an instance's slots, above 0.0 and up to 1.0, that must have a request
            before the delay is over; 0.0 calls as soon as there is one.
    """

    max_queue_delay_microseconds: int = 0
    minimum_slot_utilization: float = 0.0

    def __post_init__(self) -> None:
        share = self.minimum_slot_utilization
        if isinstance(share, float):  # the server keeps single precision; what it sends back must compare equal
            self.minimum_slot_utilization = float(str(np.float32(share)))


@dataclass(kw_only=True)
class OldestStrategy:
    """Requests of different sequences are merged in the order in which they came, as by a dynamic batcher.

    A batch has at most one request of a sequence. All requests of a sequence reach the same callable.

    Args:
        max_candidate_sequences: Sequences per callable that are open at once; further ones wait until one has ended.
        preferred_batch_size: Sizes, in rows, that are worth waiting for; None or empty leaves it to the server.
        max_queue_delay_microseconds: How long a request may wait for others to fill a batch.
        preserve_ordering: Responses leave in the order in which their requests came.

    Raises:
        PyTritonBadParameterError: ``preferred_batch_size`` is no list.
    """

    max_candidate_sequences: int
    preferred_batch_size: list[int] | None = None
    max_queue_delay_microseconds: int = 0
    preserve_ordering: bool = False

    def __post_init__(self) -> None:
        sizes = self.preferred_batch_size
        if not isinstance(sizes, (list, tuple, type(None))):
            raise PyTritonBadParameterError(f"preferred_batch_size must be a list such as [4, 8], got {sizes!r}")
        # A server sends an empty list back for an absent one; both must compare equal.
        self.preferred_batch_size = list(sizes or ()) or None


@dataclass(kw_only=True)
class SequenceBatcher:
    """Batches requests that belong to sequences, in place of a :class:`DynamicBatcher`.

    Clients give each request the correlation id of its sequence, and mark the first one and the last one. The server
    keeps a sequence's requests in order, and sends them all to one callable.

    Ranges are checked by :func:`pytriton.model_config.validation.validate`, because they depend on the model.

    Args:
        strategy: How the requests of several sequences are put into one call.
        max_sequence_idle_microseconds: A sequence without a request for so long ends; a later request of it fails.
    """

    strategy: DirectStrategy | OldestStrategy = field(default_factory=DirectStrategy)
    max_sequence_idle_microseconds: int = DEFAULT_IDLE_MICROSECONDS

    @property
    def preferred_batch_size(self) -> list[int] | None:
        """Sizes, in rows, that are worth waiting for."""
        return self.strategy.preferred_batch_size if isinstance(self.strategy, OldestStrategy) else None

    @property
    def max_queue_delay_microseconds(self) -> int:
        """How long a request may wait for others."""
        return self.strategy.max_queue_delay_microseconds
