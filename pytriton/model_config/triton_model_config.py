"""The complete description of a served model, as callables and clients see it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from pytriton.model_config.common import DeviceKind, DynamicBatcher
from pytriton.model_config.dtypes import from_triton_name, scalar_type, triton_name
from pytriton.model_config.instance_group import InstanceGroup
from pytriton.model_config.sequence_batcher import SequenceBatcher
from pytriton.model_config.tensor import Tensor, checked_format, checked_labels, checked_shape
from pytriton.model_config.version_policy import AllVersions, VersionPolicy
from pytriton.model_config.warmup import ModelWarmup

__all__ = ["ResponseCache", "TensorSpec", "TritonModelConfig", "name_tensors"]


@dataclass
class ResponseCache:
    """Whether the server keeps the model's responses.

    Args:
        enable: Answer repeated requests from the server's cache.
    """

    enable: bool


@dataclass
class TensorSpec:
    """An input or output of a served model.

    Args:
        name: Its name.
        shape: Dimensions without the batch axis; -1 is any size. ``()`` is one value per row: callables see
            ``(batch,)``, clients exchange ``(batch, 1)``.
        dtype: NumPy scalar type; for BYTES tensors ``np.bytes_``, also when made from ``object``.
        optional: Clients may leave it out.
        format: ``NCHW`` or ``NHWC``, of an input that is an image; None says nothing.
        label_filename: File with the labels of an output's classes, in the model's folder; empty is none.
        labels: What is in that file, if it is known: servers tell its name alone.

    Raises:
        PyTritonBadParameterError: The shape, the dtype, the format or the labels are not possible.
    """

    name: str
    shape: tuple[int, ...]
    dtype: type[np.generic]
    optional: bool = False
    format: str | None = None
    label_filename: str = ""
    labels: Sequence[str] | None = None

    def __post_init__(self) -> None:
        self.shape = checked_shape(self.shape)
        self.dtype = from_triton_name(triton_name(self.dtype))
        self.format = checked_format(self.format)
        self.labels = checked_labels(self.labels)


@dataclass
class TritonModelConfig:
    """The complete description of a served model.

    What the server would not keep is normalised, so that a configuration equals its own copy read back from a server
    or a file. Two things are no part of the server's configuration: the version, which is read back as 1, and labels,
    which are read back from a file that is beside the configuration's, and from a server not at all.

    Args:
        model_name: Its name.
        model_version: Its version.
        max_batch_size: Most rows in one call; becomes 0 without batching.
        batching: Tensors have a batch axis.
        batcher: How waiting requests are merged; None is one request per call. A DynamicBatcher becomes None without
            batching.
        instance_group: Instances by device; None is the server's default count. Follows from ``instance_groups`` if
            they are given.
        decoupled: A request may get zero to many responses.
        backend_parameters: Texts for the backend; other values become text.
        inputs: In the order of the model's signature; None when empty.
        outputs: In the order of the model's signature; None when empty.
        response_cache: None leaves it to the server.
        model_warmup: Requests that the server makes before the model is ready. ``bind`` makes them itself, and leaves
            this None.
        version_policy: Which versions the server serves.
        instance_groups: Instances in the server's order; None when empty. Made of ``instance_group`` if not given.
    """

    model_name: str
    model_version: int = 1
    max_batch_size: int = 4
    batching: bool = True
    batcher: DynamicBatcher | SequenceBatcher | None = None
    instance_group: dict[DeviceKind, int | None] = field(default_factory=dict)
    decoupled: bool = False
    backend_parameters: dict[str, str] = field(default_factory=dict)
    inputs: list[TensorSpec] | None = None
    outputs: list[TensorSpec] | None = None
    response_cache: ResponseCache | None = None
    model_warmup: list[ModelWarmup] | None = None
    version_policy: VersionPolicy = field(default_factory=AllVersions)
    instance_groups: list[InstanceGroup] | None = None

    def __post_init__(self) -> None:
        parameters = {key: str(value) for key, value in self.backend_parameters.items()}
        self.backend_parameters = parameters
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
        # Several groups of a kind add up; what validation is going to refuse stays as it is.
        before = instances.get(group.kind)
        instances[group.kind] = before + group.count if before and group.count else before or group.count
    return instances


def name_tensors(tensors: Sequence[Tensor], prefix: str) -> list[TensorSpec]:
    """Give tensors without a name one by position, counted from 1 over all of them.

    Args:
        tensors: The inputs or the outputs of a model.
        prefix: ``INPUT`` or ``OUTPUT``; the third tensor becomes ``INPUT_3``.
    """
    return [
        TensorSpec(
            tensor.name or f"{prefix}_{position}",
            tensor.shape,
            scalar_type(tensor.dtype),
            bool(tensor.optional),
            tensor.format,
            f"labels_{position}.txt" if tensor.labels else "",
            checked_labels(tensor.labels),
        )
        for position, tensor in enumerate(tensors, 1)
    ]
