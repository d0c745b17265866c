"""Requests to ``/predict`` of models that answer with their inputs, as the Python application answers them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from pytriton.client.session import ModelSession
from pytriton.exceptions import PyTritonError
from pytriton.model_config.dtypes import from_triton_name
from pytriton.model_config.generator import ModelConfigGenerator
from pytriton.model_config.parser import ModelConfigParser
from pytriton.model_config.tensor import Tensor, TensorSpec
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.rest.config import RestConfig
from pytriton.rest.conversion import Converter
from pytriton.rest.costs import Account, Charges, Turns
from pytriton.rest.inference import Served
from pytriton.rest.models import Model
from pytriton.rest.predict import Predict
from pytriton.signature.schema import ARRAYS, KEY, OBJECT, VALUES, Signature, tensor_of

DTYPES = (
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "FP32",
    "FP64",
    "BOOL",
    "BYTES",
)
BASE64 = {"type": "string", "contentEncoding": "base64"}
VALUES_OF_ONE_ROW = {
    "i": {"type": "integer"},
    "f": {"type": "number"},
    "b": {"type": "boolean"},
    "s": {"type": "string"},
    "small": {"type": "integer", "dtype": "INT8"},
    "single": {"type": "number", "dtype": "FP32"},
}
LIMITED = {
    "i": {"type": "integer", "minimum": -2, "exclusiveMaximum": 2**53},
    "f": {"type": "number", "exclusiveMinimum": 0.1, "maximum": 7},
    "s": {"type": "string", "minLength": 1, "maxLength": 3},
    "tone": {"type": "string", "enum": ["good", "bad", "ä"]},
    "side": {"type": "integer", "enum": [1, 2, -3]},
    "share": {"type": "number", "enum": [0.5, 1.0]},
    "l": {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1, "maxItems": 3},
}


def _typed(
    name: str, schemas: dict[str, Any], passes: str, rows: int, required: tuple[str, ...] = ()
) -> TritonModelConfig:
    signature = Signature(schemas, required, schemas, tuple(schemas), passes, OBJECT)
    inputs = [tensor_of(each, schema, optional=each not in required) for each, schema in schemas.items()]
    outputs = [tensor_of(each, schema) for each, schema in schemas.items()]
    return _config(name, inputs, outputs, rows, {KEY: signature.to_json()})


def _config(name: str, inputs: Any, outputs: Any, rows: int, parameters: dict[str, str]) -> TritonModelConfig:
    return TritonModelConfig(
        model_name=name,
        batching=rows > 0,
        max_batch_size=rows,
        inputs=[*map(_spec, inputs)],
        outputs=[*map(_spec, outputs)],
        backend_parameters=parameters,
    )


def _spec(tensor: Tensor) -> TensorSpec:
    return TensorSpec(tensor.name or "", tuple(tensor.shape), tensor.dtype, optional=bool(tensor.optional))


def _declared(name: str, tensors: list[tuple[str, str, tuple[int, ...]]], rows: int) -> TritonModelConfig:
    inputs, outputs = (
        [
            Tensor(name=each, shape=shape, dtype=from_triton_name(dtype), optional=is_input)
            for each, dtype, shape in tensors
        ]
        for is_input in (True, False)
    )
    return _config(name, inputs, outputs, rows, {})


MODELS = [
    _typed("values", VALUES_OF_ONE_ROW, VALUES, 4),
    _typed("required", VALUES_OF_ONE_ROW, VALUES, 0, ("i", "f", "s")),
    _typed(
        "lists",
        {name: {"type": "array", "items": schema} for name, schema in VALUES_OF_ONE_ROW.items()},
        VALUES,
        4,
    ),
    _typed("arrays", {dtype: {"dtype": dtype, "shape": [-1, 2]} for dtype in DTYPES}, ARRAYS, 3),
    _declared("rows", [(dtype, dtype, (-1,)) for dtype in DTYPES], 3),
    _declared("single", [(dtype, dtype, (1,)) for dtype in DTYPES], 0),
    _declared("scalar", [(dtype, dtype, ()) for dtype in DTYPES], 3),
    _typed("limited", LIMITED, VALUES, 4),
    _typed("bytes", {"d": BASE64, "i": {"type": "integer"}}, VALUES, 4),
    _typed("halves", {"half": {"type": "number", "dtype": "FP16"}}, VALUES, 4),
    _declared("half", [("x", "FP16", (-1,))], 3),
    _typed("encoded", {"texts": {"encoding": "json", "type": "array", "items": {"type": "string"}}}, VALUES, 4),
    _declared("deep", [("x", "FP32", (-1, 2, -1)), ("t", "BYTES", (2, -1)), ("instances", "INT8", (-1,))], 3),
]
LEFT = ("limited", "bytes", "halves", "half", "encoded")  # the application answers whatever gives them a value


def configurations() -> str:
    """A line for each model: its name, and its configuration as the server has it."""
    return "".join(f"{each.model_name}\t{json.dumps(ModelConfigGenerator(each).get_config())}\n" for each in MODELS)


class Application:
    """What the application would answer if the models answered with their inputs."""

    def __init__(self) -> None:
        self._predict = Predict(None, RestConfig())  # type: ignore[arg-type]
        self._charges = Charges(Account(2**40), Turns(), "")
        self._served = {}
        for each in MODELS:
            config = ModelConfigParser.from_dict(ModelConfigGenerator(each).get_config())
            model = Model.of(config)
            session = ModelSession(
                config.model_name,
                None,
                init_timeout_s=None,
                inference_timeout_s=None,
                model_config=config,
                model_ready=True,
            )
            self._served[each.model_name] = Served(model, session, Converter(model, 64))

    def answer(self, model: str, body: bytes) -> str | None:
        """The text of an answer; None if the request is refused."""
        served = self._served[model]
        try:
            question = self._predict._read_json(served, body, self._charges)
            if not all(question.rows) and KEY not in served.model.config.backend_parameters:
                return None  # the client's codec refuses a request without inputs
            rows = [{name: array[0, ...] for name, array in row.items()} for row in question.rows]
            return self._predict._encoded(served, question, rows).decode()
        except PyTritonError:
            return None


TEXTS = [
    "",
    "a",
    "ä",
    "😀",
    'q"b\\',
    "\n\t\b\f\r\0\x1f\x7f",
    "good",
    "bad",
    "NaN",
    "-Infinity",
    "Infinity",
    "AP8=",
    "YQ==",
    "YWI=",
    "YWJj",
    "AP8",
    "A===",
    "x" * 300,
]
NUMBERS = [
    "0",
    "-0",
    "-0.0",
    "1",
    "-1",
    "1.0",
    "2",
    "0.5",
    "7",
    "7.5",
    "1e3",
    "1E-7",
    "0.1",
    "255",
    "256",
    "127",
    "128",
    "-129",
]
NUMBERS += [
    "65504",
    "65519.9",
    "65520",
    "6e-8",
    "2.9e-8",
    "5.96e-8",
    "1e39",
    "3.4028235e38",
    "1e-45",
    "1e400",
    "5e-324",
    "16777217",
]
NUMBERS += [
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
]
NUMBERS += [
    "18446744073709551615",
    "18446744073709551616",
    "1e22",
    "1e16",
    "123456789012345678",
    "1e15",
    "1e-5",
    "0.00001234",
]
WRONG = [
    "NaN",
    "Infinity",
    "01",
    "+1",
    "nul",
    "tru",
    '"\\ud800"',
    '"\\u00',
    "[",
    "{",
    "1,",
    "",
    "'a'",
    '{"b64": 1}',
    '{"b64": "YQ==", "c": 1}',
    "{}",
]


class Generator:
    """Bodies, most of which are right."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def _number(self) -> str:
        kind = self._random.random()
        if kind < 0.4:
            return self._random.choice(NUMBERS)
        if kind < 0.6:
            return str(self._random.randrange(-5, 300))
        if kind < 0.8:
            return repr(self._random.uniform(-10, 10))
        return repr(self._random.uniform(0, 10) * 10.0 ** self._random.randrange(-45, 39))

    def _leaf(self, kind: str) -> str:
        if self._random.random() < 0.02:
            kind = self._random.choice(["number", "text", "boolean", "null", "wrong", "bytes"])
        if kind == "number":
            return self._number()
        if kind == "integer":
            return str(self._random.choice([0, 1, 2, 3, 100, -3, self._random.randrange(-128, 128)]))
        if kind == "boolean":
            return self._random.choice(["true", "false"])
        if kind == "bytes" and self._random.random() < 0.02:
            return json.dumps({"b64": self._random.choice(["", "AP8=", "YQ==", "/w=="])})
        if kind == "null":
            return "null"
        if kind == "wrong":
            return self._random.choice(WRONG)
        return json.dumps(self._random.choice(TEXTS), ensure_ascii=self._random.random() < 0.5)

    def _kind(self, schema: dict[str, Any]) -> str:
        if "dtype" in schema and "type" not in schema:
            return {"BOOL": "boolean", "BYTES": "bytes"}.get(
                schema["dtype"], "integer" if "INT" in schema["dtype"] and self._random.random() < 0.9 else "number"
            )
        if schema["type"] == "integer" and self._random.random() < 0.2:
            return "number"
        return schema["type"] if schema["type"] != "string" else "text"

    def _lists(self, shape: list[int], kind: str) -> str:
        if not shape or self._random.random() < 0.01:
            return self._leaf(kind)
        size = shape[0] if shape[0] >= 0 and self._random.random() < 0.98 else self._random.randrange(4)
        sizes = [self._random.randrange(4) if each < 0 and self._random.random() < 0.95 else each for each in shape[1:]]
        return f"[{','.join(self._lists(sizes, kind) for _ in range(size))}]"

    def _value(self, schema: dict[str, Any]) -> str:
        if "enum" in schema and self._random.random() < 0.7:
            return json.dumps(self._random.choice(schema["enum"]))
        if "shape" in schema:
            shape = [] if schema["shape"] == [1] and self._random.random() < 0.5 else schema["shape"]
            return self._lists(shape, self._kind(schema))
        if schema["type"] == "array":
            return self._lists([-1], self._kind(schema["items"]))
        return self._leaf(self._kind(schema))

    def _object(self, signature: Signature) -> str:
        names = [name for name in signature.inputs if name in signature.required or self._random.random() < 0.4]
        self._random.shuffle(names)
        members = [f"{json.dumps(name)}: {self._value(signature.inputs[name])}" for name in names]
        if self._random.random() < 0.02:
            members.append('"other": 1')
        if members and self._random.random() < 0.02:
            members.append(members[0])
        return "{" + ", ".join(members) + "}"

    def bodies(self, count: int) -> Iterator[tuple[str, str]]:
        models = [Model.of(config) for config in MODELS]
        for _ in range(count):
            model = self._random.choice(models)
            body = self._object(model.signature)
            if self._random.random() < 0.3:
                rows = [self._object(model.signature) for _ in range(self._random.randrange(6))]
                body = '{"instances": [' + ",".join([body, *rows]) + "]}"
            if self._random.random() < 0.03:
                place = self._random.randrange(len(body))
                body = body[:place] + self._random.choice(["", ",", "]", "}", '"', "1", " "]) + body[place + 1 :]
            yield model.config.model_name, body
