"""The complete description of a served model, as the server, callables and clients see it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pytriton.model_config.model_config import (
    AllVersions,
    DeviceKind,
    DynamicBatcher,
    InstanceGroup,
    LatencyTarget,
    SequenceBatcher,
    VersionPolicy,
)
from pytriton.model_config.tensor import TensorSpec
from pytriton.model_config.warmup import ModelWarmup

__all__ = ["EnsembleStep", "ResponseCache", "TensorSpec", "TritonModelConfig"]


@dataclass
class ResponseCache:
    """Whether the server caches the model's responses.

    Args:
        enable: Answer repeated requests from the server's cache.
    """

    enable: bool


@dataclass(frozen=True)
class EnsembleStep:
    """One of the models that the server runs one after the other as an ensemble.

    Args:
        input_map: Input of the model to tensor of the ensemble.
        output_map: Output of the model to tensor of the ensemble.
        model_version: -1 is the highest.
    """

    model_name: str
    input_map: Mapping[str, str] = field(default_factory=dict)
    output_map: Mapping[str, str] = field(default_factory=dict)
    model_version: int = -1


@dataclass
class TritonModelConfig:
    """The complete description of a served model.

    Values that the server does not keep are normalised, so that a configuration equals its own copy read back from a
    server or a file. Two values are not part of the server's configuration: the version, which is read back as 1, and
    labels, which are read back from a file beside the configuration's file, and never from a server.

    Args:
        max_batch_size: Most rows in one call; becomes 0 without batching.
        batching: Tensors have a batch axis.
        batcher: How the server merges waiting requests; None is one request per call. A DynamicBatcher becomes None
            without batching, as does a LatencyTarget.
        instance_group: Number of instances by device; None is the server's default. Computed from ``instance_groups``
            if they are given.
        decoupled: A request may get zero to many responses.
        backend_parameters: Texts for the backend; other values become text.
        inputs: In the order of the model's signature; None when empty.
        outputs: In the order of the model's signature; None when empty.
        response_cache: None leaves it to the server.
        model_warmup: Requests that the server makes before the model is ready. ``bind`` makes the requests itself, and
            leaves this None.
        version_policy: Which versions the server serves.
        instance_groups: Instances in the server's order; None when empty. Computed from ``instance_group`` if absent.
        batch_cost: As of :class:`pytriton.model_config.ModelConfig`; a pair, whose axis may be None.
        max_batch_cost: Likewise.
        steps: Those of an ensemble, which the server runs itself; None for other models.
    """

    model_name: str
    model_version: int = 1
    max_batch_size: int = 4
    batching: bool = True
    batcher: DynamicBatcher | LatencyTarget | SequenceBatcher | None = None
    instance_group: dict[DeviceKind, int | None] = field(default_factory=dict)
    decoupled: bool = False
    backend_parameters: dict[str, str] = field(default_factory=dict)
    inputs: list[TensorSpec] | None = None
    outputs: list[TensorSpec] | None = None
    response_cache: ResponseCache | None = None
    model_warmup: list[ModelWarmup] | None = None
    version_policy: VersionPolicy = field(default_factory=AllVersions)
    instance_groups: list[InstanceGroup] | None = None
    batch_cost: tuple[str, int | None] | None = None
    max_batch_cost: int | None = None
    steps: list[EnsembleStep] | None = None

    def __post_init__(self) -> None:
        self.backend_parameters = {key: str(value) for key, value in self.backend_parameters.items()}
        self.inputs = list(self.inputs or ()) or None
        self.outputs = list(self.outputs or ()) or None
        self.model_warmup = list(self.model_warmup or ()) or None
        groups = self.instance_groups or [InstanceGroup(count, kind) for kind, count in self.instance_group.items()]
        self.instance_groups = list(groups) or None
        self.instance_group = _instances_by_kind(groups)
        if not self.batching:
            self.max_batch_size = 0
            if not isinstance(self.batcher, SequenceBatcher):
                self.batcher = None

    @property
    def backend(self) -> str:
        """Name of the server's backend that runs the model."""
        return "python"


def _instances_by_kind(groups: Iterable[InstanceGroup]) -> dict[DeviceKind, int | None]:
    instances: dict[DeviceKind, int | None] = {}
    for group in groups:
        # Counts of several groups of one kind add up. An invalid count stays as it is, for validate() to refuse.
        before = instances.get(group.kind)
        instances[group.kind] = before + group.count if before and group.count else before or group.count
    return instances
