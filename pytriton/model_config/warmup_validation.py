"""The checks of a model's warm-up that ``bind`` makes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pytriton.exceptions import PyTritonBadParameterError
from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from pytriton.model_config.validation import check_integer, check_type
from pytriton.model_config.warmup import ModelWarmup, WarmupInput

__all__ = ["check_warmup"]

_UINT32_MAX = 2**32 - 1


def check_warmup(model_warmup: Sequence[ModelWarmup], config: TritonModelConfig) -> None:
    """Check that a client of the model could make these requests, and that each input has a source of data.

    Raises:
        PyTritonBadParameterError: Something is wrong; the message names the warm-up and the input.
    """
    if not isinstance(model_warmup, (list, tuple)):
        raise PyTritonBadParameterError(f"model_warmup must be a list of ModelWarmup, got {model_warmup!r}")
    specs = {spec.name: spec for spec in config.inputs or ()}
    for warmup in model_warmup:
        check_type("each of model_warmup", warmup, ModelWarmup)
        place = f"warm-up {warmup.name!r}"
        low, high = (1, config.max_batch_size) if config.batching else (0, 1)
        check_integer(f"{place}: batch_size", warmup.batch_size, low, high)
        check_integer(f"{place}: count", warmup.count, 0, _UINT32_MAX)
        if unknown := sorted(warmup.inputs.keys() - specs.keys()):
            raise PyTritonBadParameterError(f"{place}: {unknown} are no inputs of the model; it has {[*specs]}")
        if missing := sorted(name for name, spec in specs.items() if name not in warmup.inputs and not spec.optional):
            raise PyTritonBadParameterError(f"{place}: inputs {missing} are missing, and not optional")
        for name, warmup_input in warmup.inputs.items():
            _check_input(f"{place}: input {name!r}", warmup_input, specs[name])


def _check_input(place: str, warmup_input: WarmupInput, spec: TensorSpec) -> None:
    shape, found, expected = tuple(warmup_input.shape), np.dtype(warmup_input.dtype), np.dtype(spec.dtype)
    sizes_fit = len(shape) == len(spec.shape) and all(w in (-1, n) for n, w in zip(shape, spec.shape, strict=True))
    if not sizes_fit or found != expected:
        raise PyTritonBadParameterError(
            f"{place} is {found.name} of shape {shape}, but the model's is {expected.name} of shape {spec.shape}; "
            "leave the batch axis out, and give -1 a size"
        )
    if not warmup_input.has_source:
        raise PyTritonBadParameterError(f"{place} has no data; set zero_data, random_data or input_data_file")
