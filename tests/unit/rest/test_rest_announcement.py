"""What the log says of the app."""

import json
import shlex

import numpy as np
import pytest

from pytriton.llm import kinds
from pytriton.model_config.tensor import TensorSpec
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.rest.announcement import announcement, example_command
from pytriton.rest.conversion import Converter
from pytriton.rest.models import Model
from pytriton.signature.schema import KEY, Signature

URL = "http://127.0.0.1:8080"


def declared(*inputs, **options):
    return TritonModelConfig(model_name="m", inputs=[*inputs], outputs=[], **options)


def typed(inputs, required=(), examples=()):
    signature = Signature(inputs, tuple(required), {}, (), examples=tuple(examples))
    return TritonModelConfig(model_name="t", inputs=[], outputs=[], backend_parameters={KEY: signature.to_json()})


def command(config, **options):
    return example_command(URL, config, **{"header": None, **options})


def test_declared_tensors_get_a_small_array_of_their_dtype():
    x, name = TensorSpec("x", (-1, 2), np.float32), TensorSpec("name", (1,), np.bytes_)
    assert (
        command(declared(x, name))
        == f"""curl {URL}/predict/m -d '{{"x": [[1.0, 1.0], [1.0, 1.0]], "name": ["text"]}}'"""
    )


@pytest.mark.parametrize(
    ("kind", "streams", "line"),
    [
        (
            "chat",
            True,
            """curl -N {}/v1/chat/completions -d '{{"model": "m", "messages": [{{"role": "user", "content": \
"text"}}], "stream": true}}'""",
        ),
        ("embedding", False, """curl {}/v1/embeddings -d '{{"model": "m", "input": "text"}}'"""),
    ],
)
def test_language_models_are_called_over_openais_routes(kind, streams, line):
    parameters = {kinds.KEY: kinds.Kind(kind).to_json()}
    assert command(declared(decoupled=streams, backend_parameters=parameters)) == line.format(URL)


def test_only_required_inputs_are_sent():
    inputs = {"a": {"type": "integer", "minimum": 3}, "b": {"type": "string", "default": "x"}}
    assert command(typed(inputs, ["a"])) == f"""curl {URL}/predict/t -d '{{"a": 3}}'"""


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"enum": ["good", "bad"]}, '"good"'),
        ({"type": "array", "items": {"type": "number"}}, "[1.0]"),
        ({"type": "integer", "dtype": "UINT8"}, "1"),
        ({"type": "boolean"}, "true"),
        ({"type": "string", "examples": ["what a day"]}, '"what a day"'),
    ],
)
def test_a_value_fits_its_schema(schema, value):
    assert command(typed({"a": schema}, ["a"])) == f"""curl {URL}/predict/t -d '{{"a": {value}}}'"""


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "exclusiveMinimum": 0},
        {"type": "integer", "maximum": -5},
        {"type": "integer", "minimum": 2.5, "maximum": 7},
        {"type": "number", "exclusiveMinimum": 0, "dtype": "FP32"},
        {"type": "integer", "minimum": 200, "dtype": "UINT8"},
        {"type": "string", "minLength": 9},
        {"type": "string", "maxLength": 2},
        {"type": "array", "items": {"type": "number", "exclusiveMinimum": 3}, "minItems": 2},
    ],
)
def test_the_app_accepts_a_command_of_limited_values(schema):
    config = typed({"a": schema}, ["a"])
    body = json.loads(shlex.split(command(config))[-1])
    assert [*Converter(Model.of(config), 64).row(body)] == ["a"]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "multipleOf": 7},
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.5},
        {"type": "string", "minLength": 999},
        {"type": "string", "pattern": "^[0-9]+$"},
    ],
)
def test_limits_that_no_example_is_known_to_fit_leave_out_the_command(schema):
    assert command(typed({"a": schema}, ["a"])) is None


def test_the_example_of_a_function_is_its_command():
    config = typed({"a": {"type": "string"}}, ["a"], [{"input": {"a": "it's ü"}, "output": {}}])
    assert command(config) == f"""curl {URL}/predict/t -d '{{"a": "it'"'"'s ü"}}'"""


def test_a_token_comes_from_the_shells_environment_and_a_stream_is_not_collected():
    config = declared(TensorSpec("x", (1,), np.int32), decoupled=True)
    options = '-N -H "Authorization: Bearer $PYTRITON_REST_ACCESS_TOKEN"'
    assert (
        command(config, header="Authorization: Bearer $PYTRITON_REST_ACCESS_TOKEN")
        == f"""curl {options} {URL}/predict/m -d '{{"x": [1]}}'"""
    )


@pytest.mark.parametrize(
    "schema",
    [{"type": "string", "contentEncoding": "base64"}, {"$ref": "#/$defs/A"}, {"dtype": "FP32", "shape": [999]}],
)
def test_a_model_without_a_short_request_has_no_command(schema):
    assert command(typed({"a": schema}, ["a"])) is None
    assert announcement(URL, [typed({"a": schema}, ["a"])], header=None) == f"app at {URL}"


def test_a_function_is_shown_rather_than_declared_tensors():
    text = announcement(URL, [declared(), typed({"a": {"type": "boolean"}}, ["a"])], header=None)
    assert "/predict/t " in text
