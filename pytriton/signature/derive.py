"""The inputs, outputs and signature of a model, derived from its callable and from examples."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, get_args, get_origin

import numpy as np
from numpy.typing import NDArray

from pytriton.exceptions import PyTritonValidationError
from pytriton.model_config.dtypes import triton_name
from pytriton.model_config.model_config import ModelConfig
from pytriton.model_config.tensor import Tensor
from pytriton.model_config.warmup import ModelWarmup, WarmupInput
from pytriton.proxy.types import Request
from pytriton.signature.annotations import Annotations, UnderivableError, fields_of, is_record, split
from pytriton.signature.functions import BATCH, REQUESTS, SAMPLE, Described, describe
from pytriton.signature.schema import ARRAYS, OBJECT, RESULT, VALUE, VALUES, Schema, Signature, tensor_of
from pytriton.signature.served import members_of, naming_outputs
from pytriton.signature.validation import ValueMismatchError, to_json
from pytriton.signature.values import encode_rows

__all__ = ["Derived", "Example", "derive", "examples_in", "with_examples"]

Example = Mapping[str, Any]
Call = Callable[[Callable[[], Any], ModelConfig, Sequence[Tensor]], Any]
"""Calls what it is given as the callable of a model with this configuration and these inputs; the first result."""

LONGEST_EXAMPLE = 2048  # characters of JSON
SCALARS = {bool: "boolean", int: "integer", float: "number", str: "string"}


@dataclass(frozen=True)
class Derived:
    """What ``bind`` needs to know of a model.

    Attributes:
        inputs: The tensors of its inputs.
        outputs: Those of its outputs.
        config: As it was given, with what the callable's form decides, and the examples as warm-up.
        signature: None if inputs and outputs were declared.
    """

    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    config: ModelConfig
    signature: Signature | None = None


def examples_in(given: Any) -> list[Example]:
    """The examples that ``bind`` was given: one, a list of them, or None.

    Raises:
        PyTritonValidationError: One is no dict from names of inputs to values.
    """
    examples = [given] if isinstance(given, Mapping) else given or []
    if not isinstance(examples, (list, tuple)) or not all(isinstance(each, Mapping) for each in examples):
        raise PyTritonValidationError(
            f"example is {given!r:.100}; give a dict from the names of inputs to values, or a list of such"
        )
    return list(examples)


def derive(function: Any, config: ModelConfig, examples: Sequence[Example], call: Call) -> Derived:
    """Derive what ``bind`` was not told.

    Args:
        function: An inference callable.
        config: Of the model. The callable's form decides about ``batching`` and ``decoupled``: a generator makes the
            model decoupled, and a plain one or one under ``@sample`` has no batch axis.
        examples: Requests; the callable is called with each.
        call: Makes these calls.

    Raises:
        PyTritonValidationError: An input or output cannot be derived; the message names it and says what to write.
    """
    found = describe(function)
    has_rows = found.passes == BATCH or (found.passes != SAMPLE and config.batching)
    if found.passes == BATCH and not config.batching:
        raise PyTritonValidationError(f"@batch of {found.name} needs ModelConfig(batching=True); use @sample instead")
    if found.passes == VALUES and found.streams:
        has_rows = False
    if found.passes == REQUESTS:
        _check_requests(found, examples)
    if found.passes == VALUES and config.decoupled and not found.streams:
        raise PyTritonValidationError(
            f"the model is decoupled, and {found.name} gives one result; write -> Iterator[...] and yield, or leave "
            "decoupled=True out"
        )
    config = replace(config, batching=has_rows, decoupled=config.decoupled or found.streams)
    return _Derivation(function, found, config, list(examples), call).derived()


def _check_requests(found: Described, examples: Sequence[Example]) -> None:
    """Check that a function with one parameter that says nothing is given examples of arrays."""
    (name,) = found.parameters
    if not examples or any(not hasattr(value, "__array__") for each in examples for value in each.values()):
        found.refuse(
            name,
            "has no annotation, so that it gets a list of requests, which says nothing of the inputs",
            f"{name}: float, or what else {name} is; or give bind() inputs and outputs, or an example of arrays",
        )


def with_examples(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], config: ModelConfig, examples: Sequence[Example]
) -> Derived:
    """What was declared, with examples as warm-up. Their values are arrays, with batch axis if the model has one."""
    arrays = [{name: _as_array(value) for name, value in example.items()} for example in examples]
    return Derived(inputs, outputs, _warmed(config, arrays))


@dataclass
class _Derivation:
    function: Any
    found: Described
    config: ModelConfig
    examples: list[Example]
    call: Call
    kinds: Annotations = field(default_factory=Annotations)

    def derived(self) -> Derived:
        found = self.found
        inputs, required = self._inputs()
        tensors = [tensor_of(name, schema, name not in required) for name, schema in inputs.items()]
        arrays = [self._arrays(example, inputs) for example in self.examples]
        results = [self._result(each, tensors) for each in (arrays if self._passes_arrays else self.examples)]
        outputs, present, result = self._outputs(results)
        signature = Signature(
            inputs,
            tuple(required),
            outputs,
            tuple(present),
            ARRAYS if self._passes_arrays else VALUES,
            result,
            found.summary,
            tuple(self._told(results, outputs, result)),
            self.kinds.definitions,
        )
        produced = [tensor_of(name, schema) for name, schema in outputs.items()]
        return Derived(tensors, produced, _warmed(self.config, arrays), signature)

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
        schemas, required = {}, []
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
                found.refuse(name, f"has no form as a tensor: {error}", self._line(name))
            schema, optional = self._completed(name, kind.schema, values), optional or may_be_none
        elif not values:
            found.refuse(name, "has no annotation", f"{self._line(name)}, or give bind() an example")
        else:
            schema = self._of_values(name, values)
        if self._passes_arrays and name not in found.single and (schema.get("shape") is None):
            problem = (
                f"is a Python value to its annotation {found.hints.get(name)!r}, but @{found.passes} passes arrays"
            )
            found.refuse(name, problem, f"{self._line(name)}, or take @{found.passes} away")
        told: Schema = {"description": found.told[name]} if name in found.told else {}
        if parameter is not None and parameter.default not in (parameter.empty, None) and not self._passes_arrays:
            told |= _default(parameter.default)
        return {**told, **schema}, optional

    def _line(self, name: str) -> str:
        if self._passes_arrays:
            return f'{name}: Float32[np.ndarray, "{"batch " * (self.found.passes == BATCH)}3 224 224"] (of jaxtyping)'
        return f"{name}: float, or what else {name} is"

    def _completed(self, name: str, schema: Schema, values: Sequence[Any]) -> Schema:
        """A schema without what is unknown of an array, which has no batch axis any more."""
        if "shape" not in schema:
            return schema
        dtype, shape = schema["dtype"], schema["shape"]
        if shape is not None and self._has_axis:
            if not shape:
                raise PyTritonValidationError(
                    f'{self.found.name}: {name!r} has no batch axis; write Float32[np.ndarray, "batch"]'
                )
            shape = shape[1:]
        if (dtype is None or shape is None) and values:
            learned = self._of_values(name, [_as_array(value, dtype) for value in values])
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

    def _of_values(self, name: str, values: Sequence[Any]) -> Schema:
        """The schema of what an example has, or a result."""
        if self._passes_arrays or any(hasattr(each, "__array__") and np.ndim(each) for each in values):
            return self._of_arrays(name, [_as_array(each) for each in values])
        kinds = {type(each.item() if isinstance(each, np.generic) else each) for each in values}
        if kinds <= SCALARS.keys():
            if len(kinds) == 1:
                return {"type": SCALARS[kinds.pop()]}
            return {"type": "number"} if kinds == {int, float} else {"encoding": "json"}
        if kinds == {bytes}:
            return {"type": "string", "contentEncoding": "base64"}
        items = {type(item) for each in values if isinstance(each, (list, tuple)) for item in each}
        if kinds <= {list, tuple} and len(items) == 1 and items <= SCALARS.keys():
            return {"type": "array", "items": {"type": SCALARS[items.pop()]}}
        (kind,) = kinds if len(kinds) == 1 else (None,)
        if is_record(kind):
            return self.kinds.of(kind).schema
        return {"encoding": "json"}

    def _of_arrays(self, name: str, arrays: Sequence[NDArray[Any]]) -> Schema:
        try:
            dtypes = {"BYTES" if each.dtype.kind == "U" else triton_name(each.dtype) for each in arrays}
        except ValueError as error:
            raise PyTritonValidationError(f"{self.found.name}: {name!r} in an example: {error}") from error
        ranks = {each.ndim for each in arrays}
        if len(dtypes) > 1 or len(ranks) > 1:
            raise PyTritonValidationError(
                f"{self.found.name}: {name!r} has several dtypes or numbers of dimensions in the examples: "
                f"{', '.join(sorted(f'{each.dtype} {each.shape}' for each in arrays))}"
            )
        if self._has_axis and ranks == {0}:
            raise PyTritonValidationError(f"{self.found.name}: {name!r} in an example has no batch axis")
        shapes = [each.shape[1:] if self._has_axis else each.shape for each in arrays]
        shape = [sizes[0] if len({*sizes}) == 1 else -1 for sizes in zip(*shapes, strict=True)]
        return {"type": "array", "dtype": dtypes.pop(), "shape": [size or -1 for size in shape]}

    # Examples.

    def _arrays(self, example: Example, schemas: Mapping[str, Schema]) -> dict[str, NDArray[Any]]:
        """The tensors of a request; with batch axis, if the model has one."""
        arrays = {}
        for name, value in example.items():
            schema = schemas[name]
            if value is None:
                continue
            if self._passes_arrays and "shape" in schema:
                arrays[name] = _as_array(value, schema["dtype"])
                continue
            try:
                rows = encode_rows(schema, [value], self.kinds.definitions, (name,))
            except ValueMismatchError as error:
                raise PyTritonValidationError(f"the example of {self.found.name} does not fit: {error}") from error
            arrays[name] = rows if self.config.batching else rows[0]
        return arrays

    def _result(self, example: Mapping[str, Any], tensors: Sequence[Tensor]) -> Any:
        """What the function returns for an example, below what makes responses of it."""
        if not self._passes_arrays:
            given = {name: value for name, value in example.items() if value is not None}
            call = lambda: self.function(**given)  # noqa: E731
        else:
            function = self.function if self.found.passes == REQUESTS else naming_outputs(self.function)
            call = lambda: function([Request(example, requested_output_names=[])])  # noqa: E731
        try:
            result = self.call(call, self.config, tensors)
            if self._passes_arrays:
                (response,) = result
                if isinstance(response, BaseException):
                    raise response
                return dict(response)
        except Exception as error:
            raise PyTritonValidationError(
                f"the call of {self.found.name} with its example failed: {type(error).__name__}: {error}"
            ) from error
        return result

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
                self._refuse_result(f", as {error}")
            return self._learned(results)
        values = [each[RESULT] if self._passes_arrays else each for each in results]
        schema = self._completed(RESULT, schema, values)
        if self._passes_arrays and "shape" not in schema:
            self._refuse_result(f", as {self.found.result!r} is no array")
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
        """What the results of examples tell."""
        if self._passes_arrays and all({*each} == {RESULT} for each in results):
            return {RESULT: self._of_values(RESULT, [each[RESULT] for each in results])}, [RESULT], VALUE
        if is_record(type(results[0])):
            return self._fields(type(results[0]), results)
        if not all(isinstance(each, Mapping) and each for each in results):
            return {RESULT: self._of_values(RESULT, results)}, [RESULT], VALUE
        names = dict.fromkeys(name for each in results for name in each)
        values = {name: [each[name] for each in results if name in each] for name in names}
        return {name: self._of_values(name, values[name]) for name in names}, [*names], OBJECT

    def _refuse_result(self, reason: str = "") -> NoReturn:
        found = self.found
        if self._passes_arrays:
            axis = "batch " * (found.passes == BATCH)
            line = f'-> Float32[np.ndarray, "{axis}10"], -> a TypedDict of such'
        else:
            line = "-> float, -> str, -> a dataclass"
        name = next(iter(found.parameters), "x")
        raise PyTritonValidationError(
            f"{found.name}: the outputs cannot be derived{reason}; write {line}, or give bind() an example of a "
            f'request, such as example={{"{name}": ...}}'
        )

    def _told(self, results: Sequence[Any], outputs: Mapping[str, Schema], result: str) -> list[Schema]:
        """The examples as JSON, as far as they are short."""
        told = []
        for example, returned in zip(self.examples, results, strict=True):
            try:
                given = {name: to_json(value) for name, value in example.items() if value is not None}
                if result == OBJECT:
                    answer = to_json(members_of(returned, outputs))
                else:
                    answer = to_json(returned[RESULT] if self._passes_arrays else returned)
            except TypeError:
                continue
            each = {"input": given, "output": answer}
            if len(json.dumps(each)) <= LONGEST_EXAMPLE:
                told.append(each)
        return told


def _holds_arrays(bare: Any) -> bool:
    """Whether it is an annotation of a dict of arrays."""
    value = (*get_args(bare), None)[1] if len(get_args(bare)) > 1 else None
    return (get_origin(value) or value) is np.ndarray or hasattr(value, "dim_str")


def _as_array(value: Any, dtype: str | None = None) -> NDArray[Any]:
    array = np.asarray(value)
    if array.dtype.kind == "U":
        texts = np.empty(array.shape, object)
        texts[...] = np.char.encode(array, "utf-8").astype(object)
        return texts
    if array.dtype.kind == "S":
        return array.astype(object)
    if dtype is not None and dtype != "BYTES" and not hasattr(value, "__array__"):
        return array.astype(tensor_of("x", {"dtype": dtype, "shape": []}).dtype)
    return array


def _default(value: Any) -> Schema:
    try:
        return {"default": to_json(value)}
    except TypeError:
        return {}


def _warmed(config: ModelConfig, requests: Sequence[Mapping[str, NDArray[Any]]]) -> ModelConfig:
    """With requests as the first warm-ups."""
    warmups = []
    for number, arrays in enumerate(requests, 1):
        rows = len(next(iter(arrays.values()))) if config.batching and arrays else 1
        if not arrays or rows > config.max_batch_size > 0:
            continue
        inputs = {}
        for name, array in arrays.items():
            shape = array.shape[1:] if config.batching else array.shape
            if 0 not in shape:
                inputs[name] = WarmupInput(array.dtype, shape, data=array)
        if len(inputs) == len(arrays):
            warmups.append(ModelWarmup(f"example {number}", rows, inputs))
    return replace(config, model_warmup=[*warmups, *(config.model_warmup or ())] or None) if warmups else config


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "nothing"
