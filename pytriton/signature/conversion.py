"""The arguments and results of a typed function, for those that call its model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.signature.schema import OBJECT, RESULT, Schema, Signature
from pytriton.signature.validation import Problem, ValueMismatchError, shown
from pytriton.signature.values import decode_rows, encode_rows

__all__ = ["SignatureCodec"]


class SignatureCodec:
    """Converts the arguments of one model to arrays, and its outputs to results.

    Args:
        signature: Of the model.
    """

    def __init__(self, signature: Signature) -> None:
        self.signature = signature

    @classmethod
    def of(cls, config: TritonModelConfig) -> SignatureCodec | None:
        """That of a model; None if its tensors were declared."""
        signature = Signature.of(config)
        return None if signature is None else cls(signature)

    def arrays(self, values: Mapping[str, Any], *, has_rows: bool) -> dict[str, Any]:
        """The inputs of a request; arrays, and inputs that the model does not have, stay as they are.

        Args:
            values: By name; None is left out.
            has_rows: Whether each is a list of a value for each row.

        Raises:
            ValueMismatchError: Some values do not fit; it names all of them.
        """
        arrays: dict[str, Any] = {}
        found: list[Problem] = []
        for name, value in values.items():
            schema = self.signature.inputs.get(name)
            if schema is None or isinstance(value, np.ndarray):
                arrays[name] = value
            elif value is not None:
                try:
                    rows = self._rows(schema, name, value) if has_rows else self._encoded(schema, name, [value])
                    arrays[name] = rows if has_rows else rows[0]
                except ValueMismatchError as error:
                    found += error.problems
        if found:
            raise ValueMismatchError(found)
        return arrays

    def result(self, arrays: Mapping[str, NDArray[Any]]) -> Any:
        """What the outputs of one row stand for.

        Args:
            arrays: By name, without batch axis.

        Raises:
            ValueMismatchError: An output is no JSON, or no UTF-8.
            KeyError: An output is missing.
        """
        if self.signature.result != OBJECT:
            return self._decoded(RESULT, arrays[RESULT])
        present = self.signature.present
        members = {name: self._decoded(name, arrays[name]) for name in self.signature.outputs if name in arrays}
        return {name: value for name, value in members.items() if value is not None or name in present}

    def _rows(self, schema: Schema, name: str, values: Any) -> NDArray[Any]:
        if not isinstance(values, (list, tuple)) or not values:
            raise ValueMismatchError([Problem((name,), "a list of values, one per row", shown(values))])
        return self._encoded(schema, name, values)

    def _encoded(self, schema: Schema, name: str, values: Sequence[Any]) -> NDArray[Any]:
        array = encode_rows(schema, values, self.signature.definitions, (name,))
        return array[:, np.newaxis] if schema.get("shape") == [] else array  # which travels as one column

    def _decoded(self, name: str, array: NDArray[Any]) -> Any:
        (value,) = decode_rows(self.signature.outputs[name], array[np.newaxis], (name,))
        if isinstance(value, ValueMismatchError):
            raise value
        return value
