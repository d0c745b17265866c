"""The OpenAPI description of the app."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

import jsonschema_rs
import numpy as np
import pytest
from PIL import Image
from pydantic import BaseModel, Field

from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.model_spec import describe as describe_model
from pytriton.pool.inspection import tensors_of
from pytriton.pool.threads import workers_of
from pytriton.rest.models import Model
from pytriton.rest.openapi import describe


class Tone(Enum):
    GOOD = "good"
    BAD = "bad"


@dataclass
class Sentiment:
    label: Tone
    score: float


class Order(BaseModel):
    item: str
    count: int = Field(1, ge=1)


class Node(BaseModel):
    name: str
    children: "list[Node]" = []


def sentiment(text: str, threshold: Annotated[float, Field(ge=0, le=1)] = 0.5, tone: Tone | None = None) -> Sentiment:
    """How a text sounds."""


def nested(orders: list[Order], tree: Node) -> dict[str, int]: ...


def ship(parcel: Order) -> int: ...


def tell(prompt: str) -> Iterator[str]: ...


def picture(image: Image.Image, title: str = "") -> str: ...


@batch
def double(x): ...


def model(name: str, function: Any, example: Any = None, inputs: Any = None, outputs: Any = None) -> Model:
    derived = tensors_of("model", 1, workers_of(function), inputs, outputs, ModelConfig(), example)
    config = describe_model(name, 1, derived.inputs, derived.outputs, derived.config, 1)
    config.backend_parameters |= derived.parameters
    return Model.of(config)


def resolved(document: dict[str, Any], schema: Any) -> Any:
    while "$ref" in schema:
        found: Any = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        schema = found
    return schema


def request_schema(document: dict[str, Any], path: str) -> Any:
    body = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    return {**body, "components": document["components"]}


def accepts(schema: Any, value: Any) -> bool:
    return jsonschema_rs.Draft202012Validator(schema).is_valid(value)


def test_an_object_has_a_property_for_each_input_with_its_limits():
    document = describe([model("sentiment", sentiment)])
    schema = request_schema(document, "/predict/sentiment")
    assert accepts(schema, {"text": "x"})
    assert accepts(schema, {"text": "x", "threshold": 1, "tone": "good"})
    assert accepts(schema, {"instances": [{"text": "x"}]})
    assert not accepts(schema, {"text": "x", "threshold": 1.5})
    assert not accepts(schema, {"text": "x", "tone": "neutral"})
    assert not accepts(schema, {"text": 3})
    assert not accepts(schema, {"text": "x", "other": 1})
    assert not accepts(schema, {})
    assert document["paths"]["/predict/sentiment"]["post"]["description"] == "How a text sounds."


def test_records_are_components_of_their_model():
    document = describe([model("a", nested), model("b-b", nested)])
    schema = request_schema(document, "/predict/b-b")
    assert accepts(schema, {"orders": [{"item": "x", "count": 2}], "tree": {"name": "x", "children": [{"name": "y"}]}})
    assert not accepts(schema, {"orders": [{"item": "x", "count": 0}], "tree": {"name": "x"}})
    assert not accepts(schema, {"orders": [], "tree": {"name": "x", "children": [{}]}})


def test_the_members_of_the_only_record_may_be_the_body():
    schema = request_schema(describe([model("ship", ship)]), "/predict/ship")
    assert accepts(schema, {"parcel": {"item": "x"}})
    assert accepts(schema, {"item": "x", "count": 2})
    assert accepts(schema, {"instances": [{"item": "x"}, {"parcel": {"item": "x"}}]})
    assert not accepts(schema, {"count": 2})
    assert not accepts(schema, {"instances": [{"count": 2}]})


@pytest.mark.parametrize(
    ("dtype", "valid", "invalid"),
    [
        (np.float32, [1.5, 2], ["x", True]),
        (np.int8, [-128, 127], [128, 1.5]),
        (np.uint64, [0, 2**64 - 1], [-1, 2**64]),
        (np.bool_, [True, False], [0, "x"]),
        (bytes, ["x", {"b64": "AA=="}], [1, {"b64": "AA==", "x": 1}]),
    ],
)
def test_a_declared_tensor_is_nested_lists_of_its_dtype(dtype, valid, invalid):
    tensors = [Tensor(shape=(-1, 2), dtype=dtype, name="x")]
    document = describe([model("m", double, None, tensors, tensors)])
    schema = request_schema(document, "/predict/m")
    assert accepts(schema, {"x": []})
    assert accepts(schema, {"x": [valid, valid]})
    for each in invalid:
        assert not accepts(schema, {"x": [[each, each]]})
    assert not accepts(schema, {"x": [valid[:1]]})


def test_outputs_may_have_numbers_that_json_cannot_hold():
    tensors = [Tensor(shape=(-1,), dtype=np.float32, name="x")]
    document = describe([model("m", double, None, tensors, tensors)])
    schema = {"$ref": "#/components/schemas/m_output", "components": document["components"]}
    assert accepts(schema, {"x": [1.5, "NaN", "Infinity", "-Infinity"]})
    assert not accepts(schema, {"x": ["nan"]})


def test_streams_say_how_they_come():
    document = describe([model("tell", tell)])
    answer = document["paths"]["/predict/tell"]["post"]["responses"]["200"]
    assert answer["content"].keys() == {"application/x-ndjson", "text/event-stream"}
    assert "/v1/models/tell:predict" not in document["paths"]


def test_files_may_be_uploaded():
    document = describe([model("picture", picture)])
    content = document["paths"]["/predict/picture"]["post"]["requestBody"]["content"]
    assert content["multipart/form-data"]["schema"]["required"] == ["image"]


@pytest.mark.parametrize("function", [sentiment, tell, picture])
def test_an_example_fits_its_schema(function):
    document = describe([model("m", function)])
    body = document["paths"]["/predict/m"]["post"]["requestBody"]["content"]["application/json"]
    if "example" in body:
        assert accepts(request_schema(document, "/predict/m"), body["example"])
    assert ("example" in body) == (function is not picture)


def test_the_example_given_to_bind_is_shown_with_its_answer():
    @batch
    def doubled(x):
        return {"y": x * 2}

    document = describe([model("m", doubled, {"x": np.ones((1, 2), np.float32)})])
    operation = document["paths"]["/predict/m"]["post"]
    assert operation["requestBody"]["content"]["application/json"]["example"] == {"x": [1.0, 1.0]}
    assert operation["responses"]["200"]["content"]["application/json"]["example"] == {"y": [2.0, 2.0]}


def test_every_reference_leads_somewhere_and_all_of_it_is_json():
    document = describe([model(f"m{n}", f) for n, f in enumerate([sentiment, nested, tell, picture])])
    again = json.loads(json.dumps(document))
    assert again == document

    def references(part: Any) -> Iterator[str]:
        if isinstance(part, dict):
            yield from [part["$ref"]] if isinstance(part.get("$ref"), str) else []
            for each in part.values():
                yield from references(each)
        elif isinstance(part, list):
            for each in part:
                yield from references(each)

    for reference in references(document):
        assert resolved(document, {"$ref": reference})


def test_a_token_is_part_of_the_description_but_for_health():
    document = describe([], "/models", asks_token=True)
    assert document["security"] == [{"token": []}]
    assert document["paths"]["/health/live"]["get"]["security"] == []
    assert document["servers"] == [{"url": "/models"}]
    assert "secret" not in json.dumps(document)
