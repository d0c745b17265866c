# ruff: noqa: F722  (strings of jaxtyping are no annotations)
"""What is derived of callables: from their annotations, their decorators, their docstrings, and from examples."""

import asyncio
import functools
import re
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from pytriton.decorators import (
    InferenceRequest,
    batch,
    fill_optionals,
    first_value,
    group_by_keys,
    group_by_values,
    pad_batch,
    sample,
    triton_context,
    with_requests,
)
from pytriton.exceptions import PyTritonValidationError
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.pool.inspection import tensors_of
from pytriton.pool.threads import workers_of
from pytriton.signature.derive import Derived
from pytriton.signature.functions import name_of
from pytriton.signature.schema import tensor_of

jaxtyping = pytest.importorskip("jaxtyping")
pydantic = pytest.importorskip("pydantic")
Image = pytest.importorskip("PIL.Image")

from jaxtyping import Bool, Float, Float32, Shaped, UInt8  # noqa: E402

T = TypeVar("T")


class Tone(Enum):
    GOOD = "good"
    BAD = "bad"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Odd(Enum):
    ONE = object()


Name = NewType("Name", str)


@dataclass
class Point:
    """A point.

    Args:
        x: To the right.
        y: Up.
    """

    x: float
    y: float = 0.0
    tags: list[str] = field(default_factory=list)


class Pair(NamedTuple):
    left: int
    right: str = "r"


class Row(TypedDict):
    age: int
    name: str


class Loose(TypedDict, total=False):
    age: int


@dataclass
class Node:
    value: int
    next: "Node | None" = None


@dataclass
class Box(Generic[T]):
    content: T


class House(pydantic.BaseModel):
    """A house."""

    rooms: int = pydantic.Field(ge=1, description="How many")
    street: str = "Main"
    built: Any = None


class Scores(TypedDict):
    probabilities: Float32[np.ndarray, "batch 10"]
    label: NDArray[np.bytes_]


def found(function: Any, example: Any = None, **config: Any) -> Derived:
    return tensors_of("model", 1, workers_of(function), None, None, ModelConfig(**config), example)


def taking(annotation: Any) -> Any:
    def function(x):
        return 1

    function.__annotations__ = {"x": annotation, "return": int}
    return function


def giving(annotation: Any) -> Any:
    def function(x):
        return 1

    function.__annotations__ = {"x": int, "return": annotation}
    return function


def texts(*shape: int, **options: Any) -> dict[str, Any]:
    return {"dtype": np.bytes_, "shape": shape, **options}


SCALARS = [
    (int, "INT64", {"type": "integer"}),
    (float, "FP64", {"type": "number"}),
    (bool, "BOOL", {"type": "boolean"}),
    (str, "BYTES", {"type": "string"}),
    (bytes, "BYTES", {"type": "string", "contentEncoding": "base64"}),
    (np.float32, "FP32", {"type": "number", "dtype": "FP32"}),
    (np.uint8, "UINT8", {"type": "integer", "dtype": "UINT8"}),
    (np.bool_, "BOOL", {"type": "boolean", "dtype": "BOOL"}),
    (Name, "BYTES", {"type": "string"}),
    (Literal["a", "b"], "BYTES", {"type": "string", "enum": ["a", "b"]}),
    (Literal[1, 2], "INT64", {"type": "integer", "enum": [1, 2]}),
    (Literal[True], "BOOL", {"type": "boolean", "enum": [True]}),
    (Tone, "BYTES", {"type": "string", "enum": ["good", "bad"]}),
    (Level, "INT64", {"type": "integer", "enum": [1, 2]}),
    (Literal[Tone.GOOD], "BYTES", {"type": "string", "enum": ["good"]}),
    (Annotated[float, "Warm"], "FP64", {"type": "number", "description": "Warm"}),
    (
        Annotated[int, pydantic.Field(ge=0, lt=9, description="Few", examples=[3])],
        "INT64",
        {"type": "integer", "minimum": 0, "exclusiveMaximum": 9, "description": "Few", "examples": [3]},
    ),
    (
        Annotated[str, pydantic.Field(min_length=1, max_length=3, pattern="^a")],
        "BYTES",
        {"type": "string", "minLength": 1, "maxLength": 3, "pattern": "^a"},
    ),
    (Image.Image, "BYTES", {"type": "string", "contentEncoding": "base64", "contentMediaType": "image/*"}),
]
LISTS = [
    (list[float], "FP64", {"type": "array", "items": {"type": "number"}}),
    (list[str], "BYTES", {"type": "array", "items": {"type": "string"}}),
    (Sequence[int], "INT64", {"type": "array", "items": {"type": "integer"}}),
    (tuple[bool, ...], "BOOL", {"type": "array", "items": {"type": "boolean"}}),
    (set[Tone], "BYTES", {"type": "array", "items": {"type": "string", "enum": ["good", "bad"]}}),
    (Iterable[bytes], "BYTES", {"type": "array", "items": {"type": "string", "contentEncoding": "base64"}}),
    (list[np.float16], "FP16", {"type": "array", "items": {"type": "number", "dtype": "FP16"}}),
    (
        Annotated[list[int], pydantic.Field(min_length=1, max_length=3)],
        "INT64",
        {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3},
    ),
]
ARRAYS = [
    (Float32[np.ndarray, "3 224 224"], "FP32", [3, 224, 224]),
    (UInt8[np.ndarray, "height width c=3"], "UINT8", [-1, -1, 3]),
    (Bool[np.ndarray, "#n _"], "BOOL", [-1, -1]),
    (np.ndarray[tuple[int, int], np.dtype[np.int32]], "INT32", [-1, -1]),
]
JSON = [
    (dict, {"type": "object"}),
    (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
    (Mapping[str, Any], {"type": "object"}),
    (
        dict[Literal["a", "b"], float],
        {"type": "object", "additionalProperties": {"type": "number"}, "propertyNames": {"enum": ["a", "b"]}},
    ),
    (list[dict], {"type": "array", "items": {"type": "object"}}),
    (list, {"type": "array", "items": {}}),
    (list[list[float]], {"type": "array", "items": {"type": "array", "items": {"type": "number"}}}),
    (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
    (Literal["a", 1], {"enum": ["a", 1]}),
    (
        tuple[int, str],
        {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2},
    ),
    (Any, {}),
    (Point, {"$ref": "#/$defs/Point"}),
    (Pair, {"$ref": "#/$defs/Pair"}),
    (Row, {"$ref": "#/$defs/Row"}),
    (Node, {"$ref": "#/$defs/Node"}),
    (House, {"$ref": "#/$defs/House"}),
    (Box[int], {"$ref": "#/$defs/Box"}),
    (list[Point], {"type": "array", "items": {"$ref": "#/$defs/Point"}}),
]


@pytest.mark.parametrize(("annotation", "dtype", "schema"), SCALARS)
def test_a_scalar_is_one_element(annotation, dtype, schema):
    derived = found(taking(annotation))
    (tensor,) = derived.inputs
    assert derived.signature.inputs == {"x": schema}
    assert (tensor.name, tensor.shape, tensor.optional) == ("x", (1,), False)
    assert tensor == tensor_of("x", {"dtype": dtype, "shape": [1]})


@pytest.mark.parametrize(("annotation", "dtype", "schema"), LISTS)
def test_a_list_of_scalars_is_one_dimension(annotation, dtype, schema):
    derived = found(taking(annotation))
    assert derived.signature.inputs == {"x": schema}
    assert derived.inputs == [tensor_of("x", {"dtype": dtype, "shape": [-1]})]


@pytest.mark.parametrize(("annotation", "dtype", "shape"), ARRAYS)
def test_an_array_has_the_shape_that_its_annotation_says(annotation, dtype, shape):
    derived = found(taking(annotation))
    assert derived.signature.inputs == {"x": {"type": "array", "dtype": dtype, "shape": shape}}
    assert derived.inputs == [tensor_of("x", {"dtype": dtype, "shape": shape})]


@pytest.mark.parametrize(("annotation", "schema"), JSON)
def test_anything_else_is_json(annotation, schema):
    derived = found(taking(annotation))
    assert derived.signature.inputs == {"x": {**schema, "encoding": "json"}}
    assert derived.inputs == [Tensor(name="x", dtype=bytes, shape=(1,))]


def test_records_are_defined_with_their_fields_and_what_their_docstrings_say():
    definitions = found(taking(dict[str, Point | Node])).signature.definitions
    assert definitions["Point"] == {
        "type": "object",
        "description": "A point.",
        "properties": {
            "x": {"description": "To the right.", "type": "number"},
            "y": {"description": "Up.", "type": "number", "default": 0.0},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["x"],
        "additionalProperties": False,
    }
    assert definitions["Node"]["properties"]["next"] == {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}


def test_a_model_of_pydantic_is_defined_by_itself():
    rooms = found(taking(House)).signature.definitions["House"]["properties"]["rooms"]
    assert rooms == {"description": "How many", "minimum": 1, "title": "Rooms", "type": "integer"}


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the syntax is newer")
def test_aliases_of_types_are_looked_through():
    names: dict[str, Any] = {}
    exec("type Celsius = float\ntype Many[T] = list[T]\ndef f(x: Celsius, y: Many[int]) -> Celsius: ...", names)
    derived = found(names["f"])
    assert derived.signature.inputs == {"x": {"type": "number"}, "y": {"type": "array", "items": {"type": "integer"}}}


POSTPONED = """
from __future__ import annotations

class Local:
    pass

def outer():
    from dataclasses import dataclass

    @dataclass
    class Inner:
        x: int

    def function(a: int, b: list[str] | None = None, c: Inner = None) -> Inner:
        return Inner(3)

    return function, Inner
"""


def test_postponed_annotations_are_resolved_where_they_were_written():
    names: dict[str, Any] = {"__name__": __name__}
    exec(POSTPONED, names)
    function, _ = names["outer"]()
    derived = found(function)
    assert derived.signature.inputs["b"] == {"type": "array", "items": {"type": "string"}}
    assert [tensor.name for tensor in derived.outputs] == ["x"]


@pytest.mark.parametrize("annotation", [str | None, "str | None", Annotated[str | None, "A text"]])
def test_what_may_be_none_is_optional(annotation):
    (tensor,) = found(taking(annotation)).inputs
    assert (tensor.optional, tensor.dtype) == (True, np.bytes_)


def test_a_default_makes_an_input_optional_and_is_told():
    def function(a: int, b: float = 0.5, c: Tone = Tone.GOOD, d: float = np.nan, e: "int | None" = None) -> int: ...

    derived = found(function)
    assert [tensor.optional for tensor in derived.inputs] == [False, True, True, True, True]
    assert derived.signature.required == ("a",)
    defaults = {name: schema["default"] for name, schema in derived.signature.inputs.items() if "default" in schema}
    assert defaults == {"b": 0.5, "c": "good"}  # JSON has no NaN


@pytest.mark.parametrize(
    ("annotation", "schema", "dtype"),
    [
        (float, {"type": "number"}, np.float64),
        (str | None, {"anyOf": [{"type": "string"}, {"type": "null"}], "encoding": "json"}, bytes),
        (None, {"type": "null", "encoding": "json"}, bytes),
        (dict, {"type": "object", "encoding": "json"}, bytes),
        (Tone, {"type": "string", "enum": ["good", "bad"]}, np.bytes_),
    ],
)
def test_a_result_that_is_a_value_is_the_one_output(annotation, schema, dtype):
    derived = found(giving(annotation))
    assert derived.signature.result == "value"
    assert derived.signature.outputs == {"result": schema}
    assert derived.outputs == [Tensor(name="result", shape=(1,), dtype=dtype)]


@pytest.mark.parametrize(
    ("annotation", "names"),
    [
        (Point, ["x", "y", "tags"]),
        (Pair, ["left", "right"]),
        (Row, ["age", "name"]),
        (House, ["rooms", "street", "built"]),
    ],
)
def test_each_field_of_a_result_is_an_output(annotation, names):
    derived = found(giving(annotation))
    assert (derived.signature.result, [tensor.name for tensor in derived.outputs]) == ("object", names)
    assert derived.signature.present == tuple(names)


def test_a_field_that_may_be_missing_is_null_in_json():
    signature = found(giving(Loose)).signature
    assert signature.present == ()
    assert signature.outputs == {"age": {"anyOf": [{"type": "integer"}, {"type": "null"}], "encoding": "json"}}


def test_descriptions_come_from_docstrings_of_all_styles():
    def google(a: int, b: int) -> int:
        """Add numbers,
        two of them.

        More.

        Args:
            a: The first
                of them.
            b (int): The second.

        Returns:
            The sum.
        """

    def numpy(a: int, b: int) -> int:
        """Add numbers, two of them.

        Parameters
        ----------
        a : int
            The first of them.
        b
            The second.

        Returns
        -------
        int
            The sum.
        """

    def sphinx(a: int, b: int) -> int:
        """Add numbers, two of them.

        :param a: The first
            of them.
        :param int b: The second.
        :returns: The sum.
        """

    for function in (google, numpy, sphinx):
        signature = found(function).signature
        assert signature.description == "Add numbers, two of them."
        told = {name: schema["description"] for name, schema in signature.inputs.items()}
        assert told == {"a": "The first of them.", "b": "The second."}


class Callables:
    def method(self, x: int) -> int:
        return x

    @staticmethod
    def static(x: int) -> int:
        return x

    @classmethod
    def of_class(cls, x: int) -> int:
        return x

    async def coroutine(self, x: int) -> int:
        return x

    def __call__(self, x: int) -> int:
        return x


def wraps(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def with_threshold(threshold: float, x: int, scale: float = 1.0) -> int: ...


@triton_context
def in_context(x: int, triton_context) -> int: ...


@pytest.mark.parametrize(
    "function",
    [
        Callables().method,
        Callables.static,
        Callables.of_class,
        Callables().coroutine,
        Callables(),
        functools.partial(with_threshold, 0.5, scale=2.0),
        functools.partial(with_threshold, threshold=0.5, scale=2.0),
        wraps(Callables().method),
        in_context,
    ],
    ids=[
        "method",
        "static",
        "class method",
        "coroutine",
        "object",
        "positional partial",
        "partial",
        "wraps",
        "context",
    ],
)
def test_all_that_can_be_called_is_understood(function):
    derived = found(function)
    assert [tensor.name for tensor in derived.inputs] == ["x"]


def stream(x: int) -> Iterator[str]:
    yield "a"


async def stream_async(x: int) -> AsyncIterator[str]:
    yield "a"


def stream_without_annotation(x: int):
    yield "a"


def returns_an_iterator(x: int) -> Iterator[str]:
    return iter(["a"])


@pytest.mark.parametrize("function", [stream, stream_async, returns_an_iterator])
def test_a_generator_makes_its_model_decoupled_and_without_batch_axis(function):
    derived = found(function, {"x": 3}, batcher=DynamicBatcher())
    assert (derived.config.decoupled, derived.config.batching) == (True, False)
    assert derived.signature.outputs == {"result": {"type": "string"}}


def test_the_values_of_a_stream_are_learned_from_its_first():
    assert found(stream_without_annotation, {"x": 3}).signature.outputs == {"result": {"type": "string"}}


@batch
def dict_of_arrays(
    x: Float32[np.ndarray, "batch 3"], scale: NDArray[np.float32] | None = None
) -> dict[str, np.ndarray]:
    return {"sum": x.sum(axis=1, keepdims=True), "rows": np.array([[b"row"]] * len(x))}


def test_arrays_under_batch_lose_their_batch_axis_and_outputs_are_learned_from_an_example():
    example = {"x": np.ones((2, 3), np.float32), "scale": np.ones((2, 1), np.float32)}
    derived = found(dict_of_arrays, example)
    assert derived.inputs == [
        Tensor(name="x", shape=(3,), dtype=np.float32),
        Tensor(name="scale", shape=(1,), dtype=np.float32, optional=True),
    ]
    assert derived.outputs == [
        Tensor(name="sum", shape=(1,), dtype=np.float32),
        Tensor(name="rows", shape=(1,), dtype=np.bytes_),
    ]
    assert (derived.config.batching, derived.signature.passes) == (True, "arrays")


def test_dimensions_that_differ_between_examples_may_have_any_size():
    @batch
    def function(x: np.ndarray) -> dict[str, np.ndarray]:
        return {"y": x}

    derived = found(function, [{"x": np.zeros((1, 2, 5))}, {"x": np.zeros((4, 3, 5))}])
    assert derived.inputs == [Tensor(name="x", shape=(-1, 5), dtype=np.float64)]
    assert derived.outputs == [Tensor(name="y", shape=(-1, 5), dtype=np.float64)]
    with pytest.raises(PyTritonValidationError, match="several dtypes or numbers of dimensions"):
        found(function, [{"x": np.zeros((1, 2))}, {"x": np.zeros((1, 2, 3))}])


def test_arrays_of_results_are_outputs_by_the_names_of_fields():
    @dataclass
    class Result:
        y: Float32[np.ndarray, "batch"]
        z: np.ndarray

    @batch
    def of_dataclass(x: Float32[np.ndarray, "batch"]) -> Result:
        return Result(x, np.zeros((len(x), 2)))

    @batch
    def of_dict(x: Float32[np.ndarray, "batch"]) -> Scores: ...

    @batch
    def of_array(x: Float32[np.ndarray, "batch 2"]) -> Float32[np.ndarray, "batch 2"]:
        return x

    derived = found(of_dataclass, {"x": np.zeros(1, np.float32)})
    assert [(tensor.name, tensor.shape) for tensor in derived.outputs] == [("y", ()), ("z", (2,))]
    with pytest.raises(PyTritonValidationError, match="the shape of output 'label' is unknown"):
        found(of_dict)
    assert found(of_array).outputs == [Tensor(name="result", shape=(2,), dtype=np.float32)]


def test_a_function_under_sample_has_no_batch_axis():
    @sample
    def function(x: Float32[np.ndarray, "3"]) -> Float32[np.ndarray, "rows 3"]: ...

    derived = found(function)
    assert derived.config.batching is False
    assert (derived.inputs[0].shape, derived.outputs[0].shape) == ((3,), (-1, 3))


def test_decorators_say_which_parameters_are_inputs_and_which_may_be_absent():
    @with_requests
    @group_by_keys
    @fill_optionals(t=np.array([1], np.int64))
    @batch
    @group_by_values("t")
    @pad_batch
    @first_value("t")
    @triton_context
    def function(x: Float32[np.ndarray, "batch"], t: int, requests, triton_context) -> Float32[np.ndarray, "batch"]:
        assert t == 2
        return x

    derived = found(function, {"x": np.zeros(3, np.float32), "t": np.full((3, 1), 2)})
    assert derived.inputs == [
        Tensor(name="x", shape=(), dtype=np.float32),
        Tensor(name="t", shape=(1,), dtype=np.int64, optional=True),
    ]


def test_keyword_arguments_of_any_name_are_inputs_of_the_example():
    @batch
    def function(**inputs):
        return {"sum": sum(inputs.values())}

    derived = found(function, {"a": np.zeros((1, 2)), "b": np.ones((1, 2))})
    assert [tensor.name for tensor in (*derived.inputs, *derived.outputs)] == ["a", "b", "sum"]


def test_a_list_of_requests_is_known_by_its_one_parameter():
    def bare(requests):
        return [{"y": request["x"]} for request in requests]

    def annotated(requests: list[InferenceRequest]) -> list[dict]:
        return bare(requests)

    for function in (bare, annotated):
        derived = found(function, {"x": np.zeros((1, 2), np.float32)})
        assert derived.inputs == [Tensor(name="x", shape=(2,), dtype=np.float32)]
        assert derived.outputs == [Tensor(name="y", shape=(2,), dtype=np.float32)]


def test_values_without_annotations_are_learned_from_an_example():
    derived = found(lambda a, b, c, d: {"sum": a + b, "c": c}, {"a": 1, "b": 0.5, "c": ["x"], "d": {"e": 1}})
    assert derived.signature.inputs == {
        "a": {"type": "integer"},
        "b": {"type": "number"},
        "c": {"type": "array", "items": {"type": "string"}},
        "d": {"encoding": "json"},
    }
    assert derived.signature.outputs == {"sum": {"type": "number"}, "c": {"type": "array", "items": {"type": "string"}}}


def test_an_example_is_called_with_the_objects_that_the_function_takes():
    seen = []

    def function(point: Point, tone: Tone, /, house: House | None = None) -> Point:
        seen.append((point, tone, house))
        return point

    derived = found(function, {"point": {"x": 1}, "tone": "good", "house": {"rooms": 2}})
    assert seen == [(Point(1.0), Tone.GOOD, House(rooms=2))]
    assert derived.signature.examples == (
        {
            "input": {"point": {"x": 1}, "tone": "good", "house": {"rooms": 2}},
            "output": {"x": 1.0, "y": 0.0, "tags": []},
        },
    )


def test_an_example_is_the_first_warm_up():
    derived = found(dict_of_arrays, {"x": np.ones((2, 3), np.float32), "scale": np.ones((2, 1), np.float32)})
    (warmup,) = derived.config.model_warmup
    assert (warmup.batch_size, warmup.inputs["x"].shape) == (2, (3,))
    np.testing.assert_array_equal(warmup.inputs["x"].data, np.ones((2, 3)))
    declared = tensors_of(
        "model",
        1,
        workers_of(dict_of_arrays),
        derived.inputs,
        derived.outputs,
        ModelConfig(),
        {"x": [[1.0, 2.0, 3.0]]},
    )
    assert declared.signature is None
    assert len(declared.config.model_warmup) == 1


def test_a_long_example_is_not_told():
    assert found(giving(int), {"x": 1}).signature.examples
    assert not found(taking(str), {"x": "a" * 9999}).signature.examples


async def awaited(x: int):
    return x


async def derived_in_a_loop() -> Derived:
    return found(awaited, {"x": 3})


def test_an_example_is_awaited_whether_or_not_an_event_loop_runs():
    for derived in (found(awaited, {"x": 3}), asyncio.run(derived_in_a_loop())):
        assert derived.signature.outputs == {"result": {"type": "integer"}}


def not_resolved(x: "Missing") -> int: ...  # noqa: F821


def no_result(x: int): ...


def several(x, y): ...


def any_number(*values: int) -> int: ...


@fill_optionals(x=np.zeros(1))
def filled_values(x: int) -> int: ...


@batch
def values_under_batch(x: float) -> Float32[np.ndarray, "batch"]: ...


@batch
def value_of_batch(x: Float32[np.ndarray, "batch"]) -> float: ...


@batch
def unknown_outputs(x: Float32[np.ndarray, "batch"]) -> dict[str, np.ndarray]: ...


@batch
def no_axis(x: Float32[np.ndarray, ""]) -> Float32[np.ndarray, "batch"]: ...


def failing(x: int) -> int:
    raise RuntimeError("bang")


@pytest.mark.parametrize(
    ("function", "example", "message"),
    [
        (lambda x: x, None, "parameter 'x' has no annotation, so it gets a list of requests"),
        (lambda x: x, None, "write x: float"),
        (lambda x: x, {"x": 3}, "parameter 'x' has no annotation"),
        (
            several,
            None,
            "several: parameter 'x' has no annotation; write x: float, or another type, or give bind() an",
        ),
        (not_resolved, None, "the annotation 'Missing' of parameter 'x' cannot be resolved (name 'Missing'"),
        (any_number, None, "parameter '*values' has no name for each input; write values: list[float]"),
        (no_result, None, "no_result: the outputs cannot be derived; write -> float, -> str, -> a dataclass, or give"),
        (taking(Odd), None, "parameter 'x' cannot be a tensor: the values of Odd are not strings or numbers"),
        (taking(object), None, ""),
        (taking(complex), None, "complex is not a supported type; write x: float"),
        (taking(np.complex64), None, "complex64 has no data type of the server"),
        (taking(dict[int, str]), None, "the keys of a dict must be str, or an Enum or Literal of str, not int"),
        (taking(dict[Level, str]), None, "the keys of a dict must be str, or an Enum or Literal of str, not Level"),
        (taking(np.ndarray), None, "the dtype and shape of parameter 'x' is unknown"),
        (taking(NDArray[np.float32]), None, "the shape of parameter 'x' is unknown; write x: float"),
        (taking(Float[np.ndarray, "3"]), None, "the dtype of parameter 'x' is unknown"),
        (taking(Shaped[np.ndarray, "3"]), None, "the dtype of parameter 'x' is unknown"),
        (taking(Float32[np.ndarray, "..."]), None, "the shape of parameter 'x' is unknown"),
        (taking(Float32[list, "3"]), None, "is no NumPy array"),
        (giving(complex), None, "the outputs cannot be derived, as complex is not a supported type"),
        (filled_values, None, "@fill_optionals cannot give it; put @batch or @sample below @fill_optionals"),
        (
            values_under_batch,
            None,
            "parameter 'x' is a Python value to its annotation <class 'float'>, but @batch",
        ),
        (value_of_batch, None, "the outputs cannot be derived, as <class 'float'> is not an array; write -> Float32"),
        (unknown_outputs, None, 'the outputs cannot be derived; write -> Float32[np.ndarray, "batch 10"]'),
        (unknown_outputs, None, 'give bind() an example of a request, such as example={"x": ...}'),
        (no_axis, None, "'x' has no batch axis"),
        (Callables, None, "infer_func is the class Callables; give an object of it, such as Callables()"),
        (failing, {"x": 3}, "the call of failing with its example failed: RuntimeError: bang"),
        (failing, {"x": "a"}, 'the example of failing does not fit: ["x"]: expected an integer, got "a"'),
        (failing, {"y": 3}, "the example has 'y'; failing takes 'x'"),
        (failing, [{}], "example 1 lacks 'x'"),
        (failing, [{"x": 3}, {}], "example 2 lacks 'x'"),
        (failing, 3, "example is 3; give a dict from the names of inputs to values"),
        (unknown_outputs, {"x": np.float32(3)}, "failed"),
    ],
)
def test_what_cannot_be_derived_is_an_error_that_says_what_to_write(function, example, message):
    if not message:
        assert found(function, example)
        return
    with pytest.raises(PyTritonValidationError, match=re.escape(message)):
        found(function, example)


def test_a_decoupled_model_needs_a_generator():
    with pytest.raises(PyTritonValidationError, match=r"giving one result|gives one result; write -> Iterator"):
        found(giving(int), decoupled=True)
    with pytest.raises(PyTritonValidationError, match="needs ModelConfig"):
        found(dict_of_arrays, batching=False)


def test_inputs_and_outputs_are_given_both_or_derived_both():
    x = [Tensor(name="x", shape=(1,), dtype=np.int64)]
    with pytest.raises(PyTritonValidationError, match="outputs are missing; give both, or leave both out"):
        tensors_of("model", 1, workers_of(giving(int)), x, None, ModelConfig(), None)
    with pytest.raises(PyTritonValidationError, match="inputs are missing"):
        tensors_of("model", 1, workers_of(giving(int)), None, x, ModelConfig(), None)
    with pytest.raises(PyTritonValidationError, match="config must be a ModelConfig"):
        tensors_of("model", 1, workers_of(giving(int)), None, None, {"batching": False}, None)


def test_a_model_takes_its_name_from_its_function():
    assert name_of(stream) == "stream"
    assert name_of(dict_of_arrays) == "dict_of_arrays"
    assert name_of(functools.partial(with_threshold, 3)) == "with_threshold"
    assert name_of(Callables().method) == "method"
    assert name_of(Callables()) == "Callables"
    assert name_of([stream, stream]) == "stream"
    for nameless in (lambda x: x, 3, []):
        with pytest.raises(PyTritonValidationError, match="has no name for a model; give bind"):
            name_of(nameless)


@batch
def listed(text: Annotated[list[str], "English."], limit: float = 0.5, tags: list[str] | None = None) -> list[Tone]:
    return [Tone.GOOD for _ in text]


def test_lists_under_batch_have_the_tensors_of_their_elements():
    it = found(listed)
    assert it.config.batching
    assert [(each.name, each.dtype, each.shape, each.optional) for each in it.inputs] == [
        ("text", np.bytes_, (1,), False),
        ("limit", np.float64, (1,), True),
        ("tags", np.bytes_, (1,), True),
    ]
    assert it.signature.passes == "values"  # to clients, a row is a value
    assert it.signature.inputs["text"] == {"description": "English.", "type": "string"}
    assert it.signature.outputs == {"result": {"type": "string", "enum": ["good", "bad"]}}


def test_the_result_of_lists_is_learned_from_an_example_of_one_row():
    @batch
    def measured(text: list[str]):
        return [{"size": len(each)} for each in text]

    assert found(measured, example={"text": "four"}).signature.outputs == {"size": {"type": "integer"}}


def test_an_array_with_a_batch_axis_may_be_the_result_of_lists():
    @batch
    def embedded(text: list[str]) -> Float32[np.ndarray, "batch 3"]:
        return np.zeros((len(text), 3), np.float32)

    (output,) = found(embedded).outputs
    assert (output.dtype, output.shape) == (np.float32, (3,))


@pytest.mark.parametrize(
    ("decorators", "annotations", "message"),
    [
        ((batch,), {"x": list[str], "y": Float32[np.ndarray, "batch 2"]}, "'y' is an array beside lists"),
        ((batch, pad_batch), {"x": list[str], "y": float}, "@pad_batch takes arrays"),
        ((batch, first_value("y")), {"x": list[str], "y": float}, "@first_value takes arrays"),
        ((batch,), {"x": list[str], "y": float, "return": str}, "is not an array"),
        ((batch,), {"x": list[str], "y": float, "return": list[object()]}, "cannot be derived"),
        ((batch,), {"x": str, "y": float}, r"@batch passes arrays.*list\[str\] of all rows"),
    ],
)
def test_what_cannot_be_lists_is_refused_with_a_way_out(decorators, annotations, message):
    def function(x, y):
        return x

    function.__annotations__ = {"return": list[str], **annotations}
    for each in reversed(decorators):
        function = each(function)
    with pytest.raises(PyTritonValidationError, match=message):
        found(function)
