"""A model's outputs: what a callable returned is checked and becomes the tensors of a reply, in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from pytriton.proxy.validators import TritonResultsValidator
from pytriton.wire.tensors import BYTES, MAX_RANK, WHOLE_BATCH, Tensor, dtype_code, tensor
from pytriton.worker.failures import FailureLog

__all__ = ["Outputs"]


class _Output(NamedTuple):
    """A declared output: its number, its dtype, and the dtype's code in messages. No array has the dtype of BYTES."""

    number: int
    dtype: np.dtype[Any]
    code: int

    @classmethod
    def of(cls, number: int, spec: TensorSpec) -> _Output:
        dtype = np.dtype(spec.dtype)
        code = dtype_code(dtype)
        return cls(number, np.dtype(np.bytes_) if code == BYTES else dtype, code)


_UNDECLARED = _Output(0, np.dtype(np.void), 0)  # no output has this dtype


class Outputs:
    """The declared outputs of one model.

    Args:
        model_config: Of the model.
        strict: Check dtypes and shapes against the declaration, instead of casting.
        failures: Warns of outputs that are not declared.
    """

    def __init__(self, model_config: TritonModelConfig, strict: bool, failures: FailureLog) -> None:
        specs = model_config.outputs or ()
        self.names = [spec.name for spec in specs]
        self._declared = {spec.name: _Output.of(number, spec) for number, spec in enumerate(specs)}
        self._decoupled = model_config.decoupled
        self._strict = strict
        self._failures = failures
        self._validator = TritonResultsValidator(model_config, strict, encodes_text=True)

    def whole_batch(self, outputs: Any, rows: int) -> list[Tensor]:
        """The tensors of outputs that hold the rows of all requests.

        Args:
            outputs: Name to array of shape ``(rows, ...)``.
            rows: Sum of the requests' rows.

        Raises:
            ValueError: They are wrong, or one is missing.
        """
        tensors = self._tensors(outputs, WHOLE_BATCH, rows)
        if error := self._incomplete(outputs, tensors):
            raise error
        return tensors

    def each(
        self, requests: Sequence[Any], responses: Any, wanted: Sequence[Sequence[str] | None] | None = None
    ) -> list[list[Tensor] | BaseException]:
        """The tensors of each response; an exception for a response that is one, or that lacks outputs.

        Args:
            requests: Those that the callable got.
            responses: What it returned: a list of mappings and exceptions, one per request.
            wanted: Names of the outputs that each request wants; None is all, for one or for each.

        Raises:
            ValueError: Some are wrong.
        """
        rows = self._validator.validate_list(requests, responses)
        found: list[list[Tensor] | BaseException] = []
        for index, response in enumerate(responses):
            if isinstance(response, BaseException):  # asyncio.gather() may give a CancelledError
                found.append(response)
                continue
            names = None if wanted is None else wanted[index]
            tensors = self._tensors(response, index, rows[index], names)
            found.append(self._incomplete(response, tensors, names) or tensors)
        return found

    def _tensors(
        self, outputs: Any, request: int, rows: int | None, wanted: Sequence[str] | None = None
    ) -> list[Tensor]:
        """The declared (and wanted) ones of some outputs, cast to their declared dtypes.

        Args:
            outputs: Name to array.
            request: Index of their request, or WHOLE_BATCH.
            rows: Their first extent; None if that is not known, or there is no batch axis.
            wanted: Names; None is all.
        """
        if not isinstance(outputs, dict):
            self._validator.validate_mapping(outputs, _place(request))
        tensors = []
        takes_all = wanted is None and not self._strict
        for name, array in outputs.items():
            declared: _Output = self._declared.get(name, _UNDECLARED)
            number, dtype, code = declared
            if takes_all and type(array) is np.ndarray and array.dtype == dtype and array.flags.c_contiguous:
                shape = array.shape
                if len(shape) <= MAX_RANK and (rows is None or (shape and shape[0] == rows)):  # as nearly all are
                    tensors.append(Tensor(number, request, code, shape, array.nbytes, (array,)))
                    continue
            self._validator.validate_output(name, array, rows, _place(request))
            if name in self._declared and (wanted is None or name in wanted):
                if array.dtype != dtype and not (code == BYTES and array.dtype.kind in "OSU"):
                    array = array.astype(dtype)
                tensors.append(tensor(number, array, request))
        return tensors

    def _incomplete(
        self, outputs: Mapping[str, Any], tensors: Sequence[Tensor], wanted: Sequence[str] | None = None
    ) -> ValueError | None:
        """The error of outputs that lack a declared (and wanted) one; warns of those that are not declared.

        A decoupled model may spread its outputs over the responses to a request, but each response has one of them.
        """
        if len(outputs) == len(tensors) == len(self._declared):
            return None
        if undeclared := [name for name in outputs if name not in self._declared]:
            self._failures.warn_once(
                "undeclared outputs",
                f"its callable returned {_listed(undeclared)}, which is not sent, as the model's outputs are "
                f"{_listed(self._declared)}; declare it in bind, or do not return it",
            )
        expected = self._declared if wanted is None else wanted
        missing = [name for name in expected if name in self._declared and name not in outputs]
        if not missing or (self._decoupled and len(missing) < len(expected)):
            return None
        return ValueError(
            f"the callable returned {_listed(outputs)}, but not {_listed(missing)}; return every output that the model "
            "declares and request.requested_output_names has"
        )


def _place(request: int) -> str:
    return "the batch" if request == WHOLE_BATCH else f"response {request}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "no output"
