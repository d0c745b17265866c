"""Options of a model, as given to ``bind``."""

from __future__ import annotations

from dataclasses import dataclass, field

from pytriton.model_config.common import DynamicBatcher

__all__ = ["ModelConfig"]


@dataclass(frozen=True)
class ModelConfig:
    """Options of a model. ``bind`` checks their ranges.

    Args:
        batching: Tensors have a batch axis. False: no batch axis, and ``max_batch_size`` and ``batcher`` are ignored.
        max_batch_size: Most rows in one call.
        batcher: How waiting requests are merged; None is one request per call.
        response_cache: The server answers repeated requests from its cache; needs ``TritonConfig.cache_config``.
        decoupled: A request may get zero to many responses: the callable is a generator that yields each, or an async
            generator. Streaming clients call the model, and plain HTTP through ``generate_stream``.
        isolate_errors: When a call with several merged requests raises, each request is called again alone, so that
            only the one at fault fails. False: all fail.
        send_traceback: Clients get the callable's traceback too, with paths and source lines of the host; otherwise
            exception class and message only.
        max_batches_in_flight: Most batches that one instance works on at once. Only ``async def`` callables and those
            of decoupled models work on several; requests above it wait in the server, where they can be merged.
    """

    batching: bool = True
    max_batch_size: int = 4
    batcher: DynamicBatcher | None = field(default_factory=DynamicBatcher)
    response_cache: bool = False
    decoupled: bool = False
    isolate_errors: bool = field(default=True, kw_only=True)
    send_traceback: bool = field(default=False, kw_only=True)
    max_batches_in_flight: int = field(default=64, kw_only=True)
