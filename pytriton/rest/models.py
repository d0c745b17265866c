"""What the front knows of the server's models: their configurations, and what they take and return as JSON."""

from __future__ import annotations

from dataclasses import dataclass

from pytriton.model_config.dtypes import triton_name
from pytriton.model_config.tensor import TensorSpec
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.signature.schema import ARRAYS, OBJECT, Schema, Signature

__all__ = ["Model"]


@dataclass(frozen=True)
class Model:
    """A model, as the routes see it.

    Attributes:
        config: Its configuration.
        version: The version; empty for the highest.
        signature: That of its typed function, or one made of its declared tensors.
    """

    config: TritonModelConfig
    version: str
    signature: Signature

    @classmethod
    def of(cls, config: TritonModelConfig, version: str = "") -> Model:
        """The model of a configuration."""
        return cls(config, version, Signature.of(config) or _of_tensors(config))


def _of_tensors(config: TritonModelConfig) -> Signature:
    """The signature of a model whose tensors were declared: each input and output is an array of one row."""
    inputs = {each.name: each for each in config.inputs or ()}
    return Signature(
        inputs={name: _schema(each) for name, each in inputs.items()},
        required=tuple(name for name, each in inputs.items() if not each.optional),
        outputs={each.name: _schema(each) for each in config.outputs or ()},
        present=tuple(each.name for each in config.outputs or ()),
        passes=ARRAYS,
        result=OBJECT,
    )


def _schema(tensor: TensorSpec) -> Schema:
    return {"dtype": triton_name(tensor.dtype), "shape": list(tensor.shape)}
