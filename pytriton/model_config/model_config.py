"""Options of a model, as given to ``bind``."""

from __future__ import annotations

from dataclasses import dataclass, field

from pytriton.model_config.common import DynamicBatcher
from pytriton.model_config.instance_group import InstanceGroup
from pytriton.model_config.sequence_batcher import SequenceBatcher
from pytriton.model_config.version_policy import AllVersions, VersionPolicy
from pytriton.model_config.warmup import ModelWarmup

__all__ = ["ModelConfig"]


@dataclass
class ModelConfig:
    """Options of a model. ``bind`` checks their ranges.

    Args:
        batching: Tensors have a batch axis. False: no batch axis, and ``max_batch_size`` and a DynamicBatcher are
            ignored.
        max_batch_size: Most rows in one call.
        batcher: How waiting requests are merged; None is one request per call. A SequenceBatcher keeps those of a
            sequence together and in order.
        response_cache: The server answers repeated requests from its cache; needs ``TritonConfig.cache_config``.
        decoupled: A request may get zero to many responses: the callable is a generator that yields each, or an async
            generator. Streaming clients call the model, and plain HTTP through ``generate_stream``.
        model_warmup: Requests that each callable gets, in this process, before the server loads the model. Failures are
            logged, and do not prevent loading.
        isolate_errors: When a call with several merged requests raises, each request is called again alone, so that
            only the one at fault fails. False: all fail, as they always do of sequences.
        send_traceback: Clients get the callable's traceback too, with paths and source lines of the host; otherwise
            exception class and message only.
        max_batches_in_flight: Most batches that one instance works on at once. Only ``async def`` callables and those
            of decoupled models work on several; requests above it wait in the server, where they can be merged. With
            a SequenceBatcher it is always 1.
        instance_groups: Host policies, devices and rate limits of the instances, which are the callables in their
            order; None is one group of instances on the CPU.
        version_policy: Which of the bound versions the server serves; the same for all versions of a model.
        proxy: What hands requests over inside the server: ``"native"``, a backend of ours, or ``"python"``, a model of
            Triton's Python backend. ``"auto"`` is native wherever it can be.
    """

    batching: bool = True
    max_batch_size: int = 4
    batcher: DynamicBatcher | SequenceBatcher | None = field(default_factory=DynamicBatcher)
    response_cache: bool = False
    decoupled: bool = False
    model_warmup: list[ModelWarmup] | None = None
    isolate_errors: bool = field(default=True, kw_only=True)
    send_traceback: bool = field(default=False, kw_only=True)
    max_batches_in_flight: int = field(default=64, kw_only=True)
    instance_groups: list[InstanceGroup] | None = field(default=None, kw_only=True)
    version_policy: VersionPolicy = field(default_factory=AllVersions, kw_only=True)
    proxy: str = field(default="auto", kw_only=True)
