"""Random inputs for a model, from its configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from pytriton.model_config.dtypes import triton_name
from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from pytriton.model_config.warmup import WarmupInput, generate_warmup_data

__all__ = ["InputError", "Inputs", "parse_shapes"]

Shape = tuple[int, ...]


class InputError(ValueError):
    """No inputs can be made as they were asked for; the message says what to change."""


class Inputs:
    """What the requests to a model are made of.

    Args:
        config: The model's.
        batch_size: Rows of a request; None is one, and no batch axis for a model without batching.
        shapes: Input name to its dimensions, without the batch axis.
        dynamic_size: The size of dimensions that the model leaves open, where ``shapes`` say nothing.

    Raises:
        InputError: The batch size or a shape does not fit the model.

    Attributes:
        rows: Of a request; 0 without a batch axis.
    """

    def __init__(
        self,
        config: TritonModelConfig,
        batch_size: int | None = None,
        shapes: Mapping[str, Shape] | None = None,
        dynamic_size: int = 1,
    ) -> None:
        self.rows = _rows(config, batch_size)
        specs = {spec.name: spec for spec in config.inputs or ()}
        shapes = shapes or {}
        if unknown := sorted(shapes.keys() - specs.keys()):
            raise InputError(
                f"model {config.model_name!r} has no input {unknown[0]!r}; it has {', '.join(specs) or 'none'}"
            )
        self._inputs = {
            name: WarmupInput(spec.dtype, _shape(spec, shapes.get(name), dynamic_size), random_data=True)
            for name, spec in specs.items()
        }

    def arrays(self) -> list[NDArray[Any]]:
        """New random arrays, in the order of the model's inputs."""
        return [generate_warmup_data(each, self.rows) for each in self._inputs.values()]

    def describe(self) -> list[dict[str, Any]]:
        """Name, dtype, shape with the batch axis, for each input."""
        rows = (self.rows,) if self.rows else ()
        return [
            {"name": name, "dtype": triton_name(each.dtype), "shape": [*rows, *each.shape]}
            for name, each in self._inputs.items()
        ]


def parse_shapes(texts: Sequence[str]) -> dict[str, Shape]:
    """Read ``name=3,224,224`` texts; ``name:3,224`` is accepted too.

    Raises:
        InputError: A text is something else, or a size is below 1.
    """
    shapes = {}
    for text in texts:
        name, _, sizes = text.rpartition("=" if "=" in text else ":")
        try:
            shape = tuple(int(size) for size in sizes.split(","))
        except ValueError:
            shape = ()
        if not name or not shape or min(shape) < 1:
            raise InputError(f"shape {text!r} is not of the form name=3,224 with sizes above 0")
        shapes[name] = shape
    return shapes


def _rows(config: TritonModelConfig, batch_size: int | None) -> int:
    limit = config.max_batch_size
    if limit == 0 and batch_size is not None:
        raise InputError(f"model {config.model_name!r} does not support batching; leave the batch size out")
    if batch_size is not None and batch_size > limit:
        raise InputError(f"model {config.model_name!r} takes batches of up to {limit} rows, not {batch_size}")
    return 0 if limit == 0 else batch_size or 1


def _shape(spec: TensorSpec, chosen: Shape | None, dynamic_size: int) -> Shape:
    # Clients exchange one value per row as (rows, 1).
    declared = spec.shape or (1,)
    if chosen is None:
        return tuple(dynamic_size if size == -1 else size for size in declared)
    if len(chosen) != len(declared) or any(want not in (-1, size) for want, size in zip(declared, chosen, strict=True)):
        listed = ",".join("any" if size == -1 else str(size) for size in declared)
        raise InputError(
            f"input {spec.name!r} has the shape {listed} without the batch axis, which {chosen} does not fit"
        )
    return chosen
