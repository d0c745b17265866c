"""The inputs, outputs and signature of a model, derived from its callable and from examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Any, NoReturn, get_args, get_origin

import numpy as np
from numpy.typing import NDArray

from pytriton.exceptions import PyTritonValidationError
from pytriton.model_config.model_config import ModelConfig
from pytriton.model_config.tensor import Tensor
from pytriton.model_config.triton_model_config import EnsembleStep
from pytriton.proxy.types import Request
from pytriton.signature.annotations import OF_DATES, Annotations, default_of, split
from pytriton.signature.arguments import Arguments
from pytriton.signature.examples import Example, as_array, in_json, schema_of, warmed
from pytriton.signature.foreign import is_table, is_tensor
from pytriton.signature.functions import BATCH, LISTS, REQUESTS, SAMPLE, Described, describe
from pytriton.signature.problems import ValueMismatchError
from pytriton.signature.records import UnderivableError, fields_of, is_record
from pytriton.signature.schema import ARRAYS, KEY, OBJECT, RESULT, VALUE, VALUES, Schema, Signature, tensor_of
from pytriton.signature.served import OwnForm, in_place_of_batch, members_of, naming_outputs, tensor_parameters
from pytriton.signature.values import encode_rows

__all__ = ["Derived", "declared", "derive"]

Call = Callable[[Callable[[], Any], ModelConfig, Sequence[Tensor]], Any]
"""Makes a call as the callable of a model with this configuration and these inputs; returns the first result."""


@dataclass(frozen=True)
class Derived:
    """The properties of a model that ``bind`` needs.

    Attributes:
        inputs: The tensors of its inputs.
        outputs: The tensors of its outputs.
        config: The given configuration, with the options that the callable's form decides, and the examples as warm-up.
        signature: None if inputs and outputs were declared.
        marks: Other parameters for the model's configuration, which tell what it is.
        steps: Those of an ensemble, which the server runs without callables; None for others.
    """

    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    config: ModelConfig
    signature: Signature | None = None
    marks: Mapping[str, str] = field(default_factory=dict)
    steps: list[EnsembleStep] | None = None

    @property
    def parameters(self) -> dict[str, str]:
        """Parameters for the model's configuration."""
        return {**self.marks, **({} if self.signature is None else {KEY: self.signature.to_json()})}


def declared(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], config: ModelConfig, examples: Sequence[Example]
) -> Derived:
    """The declared tensors, with examples as warm-up: arrays, with batch axis if the model has one."""
    arrays = [{name: as_array(value) for name, value in example.items()} for example in examples]
    return Derived(inputs, outputs, warmed(config, arrays))


def derive(function: Any, config: ModelConfig, examples: Sequence[Example], call: Call) -> Derived:
    """Derive the tensors of a model.

    Args:
        config: Of the model. The callable's form decides about ``batching`` and ``decoupled``: a generator makes the
            model decoupled. A generator of values, a function under ``@sample``, and one that can be called without
            arguments have no batch axis.
        examples: Requests; the callable is called with each.

    Raises:
        PyTritonValidationError: An input or output cannot be derived; the message names it and says what to write.
    """
    if isinstance(function, OwnForm):
        if examples:
            raise PyTritonValidationError(f"a {type(function).__name__} takes no example")
        derived: Derived = function.derived(config)
        return derived
    found = describe(function)
    has_rows = found.passes in (BATCH, LISTS) or (found.passes != SAMPLE and config.batching)
    if found.passes in (BATCH, LISTS) and not config.batching:
        raise PyTritonValidationError(f"@batch of {found.name} needs ModelConfig(batching=True); use @sample instead")
    if found.passes == VALUES and (found.streams or not _needs_inputs(found)):
        has_rows = False  # a request without inputs does not say how many rows it has
    if found.passes == REQUESTS:
        _check_requests(found, examples)
    if found.passes == VALUES and config.decoupled and not found.streams:
        raise PyTritonValidationError(
            f"the model is decoupled, and {found.name} gives one result; write -> Iterator[...] and yield, or leave "
            "decoupled=True out"
        )
    config = replace(config, batching=has_rows, decoupled=config.decoupled or found.streams)
    return _Derivation(function, found, config, list(examples), call).derived()


def _needs_inputs(found: Described) -> bool:
    """Whether each request has an input."""
    parameters = found.parameters.items()
    return any(each.default is each.empty and not split(found.hints.get(name))[2] for name, each in parameters)


def _check_requests(found: Described, examples: Sequence[Example]) -> None:
    """Check that a function with one parameter without annotation has examples of arrays."""
    (name,) = found.parameters
    if not examples or any(not hasattr(value, "__array__") for each in examples for value in each.values()):
        found.refuse(
            name,
            "has no annotation, so it gets a list of requests, and the inputs are unknown",
            f"{name}: float, or another type; or give bind() inputs and outputs, or an example of arrays",
        )


@dataclass
class _Derivation:
    function: Any
    found: Described
    config: ModelConfig
    examples: list[Example]
    call: Call
    kinds: Annotations = field(default_factory=Annotations)
    loads: dict[str, Any] = field(default_factory=dict)

    def derived(self) -> Derived:
        found = self.found
        inputs, required = self._inputs()
        tensors = [tensor_of(name, schema, name not in required) for name, schema in inputs.items()]
        arrays = [self._arrays(example, inputs) for example in self.examples]
        results = [self._result(each, inputs, tensors) for each in arrays]
        outputs, present, result = self._outputs(results)
        told = [self._told(each, outputs, result) for each in results]
        signature = Signature(
            inputs,
            tuple(required),
            outputs,
            tuple(present),
            ARRAYS if self._passes_arrays else VALUES,
            result,
            found.summary,
            tuple(in_json(self.examples, told, has_axis=self._has_axis)),
            self.kinds.definitions,
        )
        produced = [tensor_of(name, schema) for name, schema in outputs.items()]
        return Derived(tensors, produced, warmed(self.config, arrays), signature)

    @property
    def _passes_arrays(self) -> bool:
        return self.found.passes in (BATCH, SAMPLE, REQUESTS)

    @property
    def _has_axis(self) -> bool:
        """Whether the arrays that the function gets have a batch axis."""
        return self._passes_arrays and self.config.batching

    # Inputs.

    def _inputs(self) -> tuple[dict[str, Schema], list[str]]:
        found = self.found
        names = [] if found.passes == REQUESTS else [*found.parameters]
        if found.takes_others or found.passes == REQUESTS:
            names += dict.fromkeys(name for each in self.examples for name in each if name not in names)
        if unknown := sorted({name for each in self.examples for name in each} - {*names}):
            raise PyTritonValidationError(f"the example has {_listed(unknown)}; {found.name} takes {_listed(names)}")
        schemas: dict[str, Schema] = {}
        required = []
        for name in names:
            schemas[name], optional = self._input(name)
            if not optional:
                required.append(name)
        for number, example in enumerate(self.examples, 1):
            if lacking := [name for name in required if name not in example]:
                raise PyTritonValidationError(f"example {number} lacks {_listed(lacking)}")
        return schemas, required

    def _input(self, name: str) -> tuple[Schema, bool]:
        found, parameter = self.found, self.found.parameters.get(name)
        values = [each[name] for each in self.examples if each.get(name) is not None]
        optional = name in found.filled or (parameter is not None and parameter.default is not parameter.empty)
        if name in found.hints:
            try:
                kind, may_be_none = self.kinds.of_input(found.hints[name])
            except UnderivableError as error:
                line = f"{name}: {error.instead}" if error.instead else self._line(name)
                found.refuse(name, f"cannot be a tensor: {error}", line)
            schema, optional = self._completed(name, kind.schema, values), optional or may_be_none
            self.loads[name] = kind.load
        elif not values:
            found.refuse(name, "has no annotation", f"{self._line(name)}, or give bind() an example")
        else:
            schema = self._schema_of(name, values)
        if self._passes_arrays and name not in found.single and (schema.get("shape") is None):
            problem = (
                f"is a Python value to its annotation {found.hints.get(name)!r}, but @{found.passes} passes arrays"
            )
            found.refuse(name, problem, f"{self._line(name)}, or remove @{found.passes}")
        if found.passes == LISTS and name not in found.listed and "shape" in schema:
            problem = f"is an array beside lists ({_listed(found.listed)}), one for all rows"
            found.refuse(name, problem, f'{name}: list[Float32[np.ndarray, "3 224 224"]] (of jaxtyping)')
        described: Schema = {"description": found.descriptions[name]} if name in found.descriptions else {}
        if parameter is not None and parameter.default not in (parameter.empty, None) and not self._passes_arrays:
            described |= default_of(parameter.default)
        return {**described, **schema}, optional

    def _line(self, name: str) -> str:
        if self.found.passes == BATCH:
            return f'{name}: Float32[np.ndarray, "batch 3 224 224"] (of jaxtyping), or list[str] of all rows'
        if self._passes_arrays:
            return f'{name}: Float32[np.ndarray, "3 224 224"] (of jaxtyping)'
        if self.found.passes == LISTS:
            return f"{name}: list[float], or of another type"
        return f"{name}: float, or another type"

    def _completed(self, name: str, schema: Schema, values: Sequence[Any]) -> Schema:
        """A schema without what is unknown of an array, which has no batch axis any more."""
        if "shape" not in schema:
            return schema
        dtype, shape = schema["dtype"], schema["shape"]
        if shape is not None and (self._has_axis or (name == RESULT and self.found.stacks)):
            if not shape:
                raise PyTritonValidationError(
                    f'{self.found.name}: {name!r} has no batch axis; write Float32[np.ndarray, "batch"]'
                )
            shape = shape[1:]
        if (dtype is None or shape is None) and values:
            learned = self._schema_of(name, [as_array(value, dtype) for value in values])
            dtype, shape = dtype or learned["dtype"], learned["shape"] if shape is None else shape
        if dtype is None or shape is None:
            unknown = " and ".join(["dtype"] * (dtype is None) + ["shape"] * (shape is None))
            place = f"parameter {name!r}" if name in self.found.parameters else f"output {name!r}"
            raise PyTritonValidationError(
                f"{self.found.name}: the {unknown} of {place} is unknown; write {self._line(name)}, or give bind() an "
                f'example, such as example={{"{name}": ...}}'
                if name in self.found.parameters
                else f"{self.found.name}: the {unknown} of {place} is unknown; give bind() an example of a request, "
                f"from whose result they are taken, or write {self._line(name)}"
            )
        return {**schema, "dtype": dtype, "shape": shape}

    def _schema_of(self, name: str, values: Sequence[Any]) -> Schema:
        kinds = {type(value) for value in values}
        if len(kinds) == 1 and not self._passes_arrays:
            (kind,) = kinds
            if is_record(kind) or is_table(kind) or kind in (*OF_DATES, Decimal):
                return self.kinds.of(kind).schema
        place = f"{self.found.name}: {name!r}"
        return schema_of(place, values, as_arrays=self._passes_arrays, has_axis=self._has_axis)

    # Examples.

    def _arrays(self, example: Example, schemas: Mapping[str, Schema]) -> dict[str, NDArray[Any]]:
        """The tensors of a request; with batch axis, if the model has one."""
        arrays = {}
        for name, value in example.items():
            schema = schemas[name]
            if value is None:
                continue
            if self._passes_arrays and ("shape" in schema or isinstance(value, np.ndarray)):
                arrays[name] = as_array(value, schema.get("dtype"))
                continue
            try:
                rows = encode_rows(schema, [value], self.kinds.definitions, (name,))
            except ValueMismatchError as error:
                raise PyTritonValidationError(f"the example of {self.found.name} does not fit: {error}") from error
            arrays[name] = rows if self.config.batching else rows[0]
        return arrays

    def _result(
        self, example: Mapping[str, NDArray[Any]], schemas: Mapping[str, Schema], tensors: Sequence[Tensor]
    ) -> Any:
        """The function's own result for the arrays of an example, before it becomes a response."""
        if not self._passes_arrays:
            kinds = {name: (schema, self.loads.get(name)) for name, schema in schemas.items()}
            (row,) = Arguments(kinds, self.kinds.definitions, self.config.batching).of(example)
            if isinstance(row, ValueMismatchError):
                raise PyTritonValidationError(f"the example of {self.found.name} does not fit: {row}")
            if self.found.passes == LISTS:
                row = {name: [value] if name in self.found.listed else value for name, value in row.items()}
            row = {**self.found.absent, **row}
            args = [row.pop(name) for name in self.found.positional if name in row]
            if self.found.passes == LISTS:
                function = partial(self._called_with_lists(args, row), [Request(example, requested_output_names=[])])
            else:
                function = partial(self.function, *args, **row)
        elif self.found.passes == REQUESTS:
            function = partial(self.function, [Request(example, requested_output_names=[])])
        else:
            named = naming_outputs(self.function, tensor_parameters(self.found))
            function = partial(named, [Request(example, requested_output_names=[])])
        try:
            result = self.call(function, self.config, tensors)
            if self._passes_arrays:
                (response,) = result
                if isinstance(response, BaseException):
                    raise response
                return dict(response)
        except Exception as error:
            raise PyTritonValidationError(
                f"the call of {self.found.name} with its example failed: {type(error).__name__}: {error}"
            ) from error
        if self.found.passes == LISTS:
            if not isinstance(result, (list, tuple, np.ndarray)) or len(result) != 1:
                raise PyTritonValidationError(
                    f"{self.found.name} returned {type(result).__name__} for its example; return a list with one value "
                    "per row, here one"
                )
            return result[0]
        return result

    def _called_with_lists(self, args: Sequence[Any], row: Mapping[str, Any]) -> Callable[[Any], Any]:
        """The function with its decorators above ``@batch``, which gets these arguments in place of a batch."""

        def batch(wrapped: Any, instance: Any, given: Any, added: Mapping[str, Any]) -> Any:
            return wrapped(*args, **row, **added)

        called: Callable[[Any], Any] = in_place_of_batch(self.function, batch)
        return called

    # Outputs.

    def _outputs(self, results: Sequence[Any]) -> tuple[dict[str, Schema], list[str], str]:
        """The schemas of outputs, the names of those that are always there, and what the result is."""
        found = self.found
        bare, _, optional = split(found.result)
        origin = get_origin(bare) or bare
        if "return" in found.hints and is_record(origin) and not optional:
            return self._fields(origin, results)
        of_arrays = origin in (dict, Mapping) and (self._passes_arrays or _holds_arrays(bare))
        if "return" in found.hints and found.result is not None and not of_arrays and origin not in (list, tuple):
            return self._value(results)
        if "return" in found.hints and not self._passes_arrays and not of_arrays:
            return self._value(results)
        if not results:
            self._refuse_result()
        return self._learned(results)

    def _value(self, results: Sequence[Any]) -> tuple[dict[str, Schema], list[str], str]:
        try:
            schema = self.kinds.of(self.found.result).schema
        except UnderivableError as error:
            if not results:
                self._refuse_result(f", as {error}", error.instead)
            return self._learned(results)
        values = [each[RESULT] if self._passes_arrays else each for each in results]
        schema = self._completed(RESULT, schema, values)
        if (self._passes_arrays or self.found.stacks) and "shape" not in schema:
            self._refuse_result(f", as {self.found.result!r} is not an array")
        return {RESULT: schema}, [RESULT], VALUE

    def _fields(self, cls: Any, results: Sequence[Any]) -> tuple[dict[str, Schema], list[str], str]:
        """One output per field of a record."""
        fields = fields_of(cls)
        schemas = {each.name: self._field(cls, each.name, each.annotation) for each in fields}
        members = [members_of(result, schemas) for result in results]
        for each in fields:
            values = [member[each.name] for member in members if member[each.name] is not None]
            schema = self._completed(each.name, schemas[each.name], values)
            told: Schema = {"description": each.description} if each.description else {}
            schemas[each.name] = {**told, **schema}
            if self._passes_arrays and "shape" not in schema:
                self._refuse_result(f", as its field {each.name!r} is no array")
        is_partial = hasattr(cls, "__required_keys__")
        present = [each.name for each in fields if each.required or not is_partial]
        return schemas, present, OBJECT

    def _field(self, cls: Any, name: str, annotation: Any) -> Schema:
        optional = hasattr(cls, "__required_keys__") and name not in cls.__required_keys__
        try:
            return self.kinds.of(annotation | None if optional else annotation).schema
        except (UnderivableError, TypeError) as error:
            if not hasattr(cls, "model_json_schema"):
                self._refuse_result(f", as its field {name!r} has no form: {error}")
            whole = cls.model_json_schema(mode="serialization", by_alias=False, ref_template="#/$defs/{model}")
            self.kinds.definitions |= whole.get("$defs", {})
            return {**whole["properties"][name], "encoding": "json"}

    def _learned(self, results: Sequence[Any]) -> tuple[dict[str, Schema], list[str], str]:
        """The outputs, learned from the results of examples."""
        if self._passes_arrays and all({*each} == {RESULT} for each in results):
            return {RESULT: self._schema_of(RESULT, [each[RESULT] for each in results])}, [RESULT], VALUE
        if is_record(type(results[0])):
            return self._fields(type(results[0]), results)
        if not all(isinstance(each, Mapping) and each for each in results):
            return {RESULT: self._schema_of(RESULT, results)}, [RESULT], VALUE
        names = dict.fromkeys(name for each in results for name in each)
        values = {name: [each[name] for each in results if name in each] for name in names}
        return {name: self._schema_of(name, values[name]) for name in names}, [*names], OBJECT

    def _refuse_result(self, reason: str = "", instead: str = "") -> NoReturn:
        found = self.found
        if self._passes_arrays:
            axis = "batch " * (found.passes == BATCH)
            line = f'-> Float32[np.ndarray, "{axis}10"], -> a TypedDict of such'
        else:
            line = "-> float, -> str, -> a dataclass"
            if found.passes == LISTS:
                line = '-> list[float], -> list of a dataclass, -> Float32[np.ndarray, "batch 384"]'
        if instead:
            line = f"-> {instead}"
        name = next(iter(found.parameters), "x")
        raise PyTritonValidationError(
            f"{found.name}: the outputs cannot be derived{reason}; write {line}, or give bind() an example of a "
            f'request, such as example={{"{name}": ...}}'
        )

    def _told(self, result: Any, outputs: Mapping[str, Schema], form: str) -> Any:
        if form == OBJECT:
            return members_of(result, outputs)
        return result[RESULT] if self._passes_arrays else result


def _holds_arrays(bare: Any) -> bool:
    """Whether it is an annotation of a dict of arrays."""
    value = (*get_args(bare), None)[1] if len(get_args(bare)) > 1 else None
    return (get_origin(value) or value) is np.ndarray or hasattr(value, "dim_str") or is_tensor(value)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "nothing"
