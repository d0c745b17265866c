"""What a context knows of its model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pytriton.compat.tensorrtserver.exceptions import InferenceServerException
from pytriton.exceptions import PyTritonModelConfigError
from pytriton.model_config.dtypes import from_triton_name
from pytriton.model_config.parser import ModelConfigParser
from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig

__all__ = ["fetch_descriptions", "from_metadata"]

_ANY_BATCH_SIZE = 2**31 - 1


def fetch_descriptions(
    call: Callable[[str, Mapping[str, Any]], Any], model: Mapping[str, str]
) -> list[TritonModelConfig]:
    """The model's configuration; of a server that does not give it to everybody, what its metadata may mean.

    Args:
        call: Calls a method of tritonclient's client with arguments.
        model: ``model_name`` and ``model_version``, of which an empty one is the highest.

    Returns:
        One, or those of :func:`from_metadata`.

    Raises:
        InferenceServerException: There is no such model, or it cannot be understood.
    """
    try:
        try:
            return [ModelConfigParser.from_dict(call("get_model_config", model))]
        except InferenceServerException as error:
            if "is restricted" not in str(error):
                raise
            return from_metadata(call("get_model_metadata", model))
    except (AttributeError, KeyError, PyTritonModelConfigError, TypeError, ValueError) as error:
        raise InferenceServerException(
            f"the description of model {model['model_name']!r} cannot be understood: {error}"
        ) from None


def from_metadata(metadata: Mapping[str, Any]) -> list[TritonModelConfig]:
    """Descriptions without the maximum batch size.

    If the first of several dimensions of all tensors may have any size, it may be that of the batch or not. The arrays
    of a request tell by the count of their axes.

    Args:
        metadata: As HTTP, or gRPC's JSON form, gives them.

    Returns:
        With a batch axis, if that is possible, and without one.
    """
    inputs, outputs = _specs(metadata, "inputs"), _specs(metadata, "outputs")
    found = [TritonModelConfig(metadata["name"], batching=False, inputs=inputs, outputs=outputs)]
    if all(spec.shape[0] == -1 and len(spec.shape) > 1 for spec in inputs + outputs):
        inputs, outputs = ([replace(spec, shape=spec.shape[1:]) for spec in specs] for specs in (inputs, outputs))
        found.insert(
            0, TritonModelConfig(metadata["name"], max_batch_size=_ANY_BATCH_SIZE, inputs=inputs, outputs=outputs)
        )
    return found


def _specs(metadata: Mapping[str, Any], kind: str) -> list[TensorSpec]:
    return [
        TensorSpec(each["name"], tuple(int(size) for size in each["shape"]), from_triton_name(each["datatype"]))
        for each in metadata.get(kind, ())
    ]
