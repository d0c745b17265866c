"""Which callable is which of a model's instances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytriton.exceptions import PyTritonBadParameterError
from pytriton.model_config.common import DeviceKind
from pytriton.model_config.instance_group import InstanceGroup
from pytriton.model_config.triton_model_config import TritonModelConfig

__all__ = ["check_callables", "placed"]


def placed(groups: Sequence[InstanceGroup] | None, callables: int) -> list[InstanceGroup]:
    """The instance groups of so many callables; a single one takes all of them if it has no count.

    Raises:
        PyTritonBadParameterError: They are no list, or one of several has no count.
    """
    if not isinstance(groups, (list, tuple, type(None))) or not all(isinstance(g, InstanceGroup) for g in groups or ()):
        raise PyTritonBadParameterError(f"instance_groups must be a list of InstanceGroup, got {groups!r}")
    groups = list(groups or [InstanceGroup()])
    if len(groups) == 1 and groups[0].count is None:
        return [replace(groups[0], count=max(1, callables // groups[0].devices))]
    if any(group.count is None for group in groups):
        raise PyTritonBadParameterError("give each of several instance_groups a count: how many callables are its own")
    return groups


def check_callables(config: TritonModelConfig, callables: int) -> None:
    """Raise PyTritonBadParameterError unless each instance has a callable, and each callable an instance."""
    for group in config.instance_groups or ():
        if group.kind is DeviceKind.KIND_AUTO or (group.kind is DeviceKind.KIND_GPU and not group.gpus):
            raise PyTritonBadParameterError(
                f"an instance group of model {config.model_name!r} is {group.kind.value}, of which the server makes as "
                "many instances as it finds GPUs; use KIND_CPU, or KIND_GPU with gpus=[0, ...]"
            )
    instances = sum((group.count or 0) * group.devices for group in config.instance_groups or ())
    if instances != callables:
        raise PyTritonBadParameterError(
            f"the instance groups of model {config.model_name!r} make {instances} instances, but it has {callables} "
            "callables; give bind() a list with one callable per instance"
        )
