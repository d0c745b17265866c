"""The OpenAPI 3.1 description of the front, made from the configurations of the models."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import Any

from pytriton.rest.config import RestConfig
from pytriton.rest.models import Model
from pytriton.rest.openai.schema import described
from pytriton.signature.schema import OBJECT, RESULT, Schema, is_native

__all__ = ["describe", "example_of", "schemas_of"]

LARGEST_EXAMPLE = 64  # numbers; one made from a schema that needs more is left out
DEFAULT_SIZE = 2  # of dimensions that may have any
INTEGERS = {f"{sign}INT{bits}": (sign, bits) for sign in ("", "U") for bits in (8, 16, 32, 64)}
FLOATS = ("FP16", "FP32", "FP64", "BF16")
NON_FINITE = "NonFinite"
ENCODED = "EncodedBytes"
ERROR = "Error"
BASE64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"

COMPONENTS: dict[str, Schema] = {
    NON_FINITE: {
        "description": "A number that JSON cannot hold.",
        "type": "string",
        "enum": ["NaN", "Infinity", "-Infinity"],
    },
    ENCODED: {
        "description": "Bytes that are not text in UTF-8.",
        "type": "object",
        "properties": {"b64": {"type": "string", "contentEncoding": "base64", "pattern": BASE64}},
        "required": ["b64"],
        "additionalProperties": False,
    },
    ERROR: {
        "type": "object",
        "properties": {
            "error": {
                "type": "object",
                "properties": {
                    "code": {"type": "string"},
                    "message": {"type": "string"},
                    "details": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {
                                "path": {"type": "array", "items": {"type": ["string", "integer"]}},
                                "expected": {"type": "string"},
                                "got": {"type": "string"},
                            },
                            "required": ["path", "expected", "got"],
                        },
                    },
                },
                "required": ["code", "message"],
            }
        },
        "required": ["error"],
    },
}

ERRORS = {
    "400": "The body is not JSON, or not what its content type says.",
    "401": "The access token is missing or wrong.",
    "403": "A page of another origin may not call this.",
    "404": "There is no such model.",
    "406": "The answer has no form that `Accept` asks for.",
    "408": "The body did not come in time.",
    "413": "The body is too large.",
    "415": "The content type is not among those of the model.",
    "422": "Values do not fit the model's inputs; `details` names each.",
    "429": "Too many requests; see the header `Retry-After`.",
    "500": "The model failed.",
    "501": "The server cannot do this with its present options.",
    "503": "The server or the model is not ready.",
    "504": "The answer did not come in time.",
}


def describe(models: Iterable[Model], config: RestConfig, root_path: str = "") -> dict[str, Any]:
    """The description of all routes.

    Args:
        models: Those of the server.
        config: Options of the front.
        root_path: Path below which callers find the routes, such as ``/models``.

    Returns:
        An OpenAPI 3.1 document, as :mod:`json` takes it.
    """
    writer = _Writer()
    models = list(models)
    for model in models:
        writer.add(model)
    openai_paths, openai_schemas = described(model.config for model in models)
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "Models",
            "version": version("pytriton"),
            "description": "The models of a Triton Inference Server.",
        },
        "servers": [{"url": root_path or "/"}],
        "paths": {**writer.paths, **openai_paths, **_server_paths()},
        "components": {
            "schemas": {**COMPONENTS, **openai_schemas, **writer.schemas},
            "responses": {f"Error{status}": _error(text) for status, text in ERRORS.items()},
        },
    }
    if config.access_token is not None or config.api_keys is not None:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document


class _Writer:
    """Collects the paths and schemas of models."""

    def __init__(self) -> None:
        self.paths: dict[str, Any] = {}
        self.schemas: dict[str, Schema] = {}

    def add(self, model: Model) -> None:
        """Describe the routes of a model."""
        name, signature = model.config.model_name, model.signature
        prefix = re.sub(r"[^A-Za-z0-9_]", "_", f"{name}_{model.version}" if model.version else name)
        references = {key: f"#/components/schemas/{prefix}_{_plain(key)}" for key in signature.definitions}
        for key, schema in signature.definitions.items():
            self.schemas[f"{prefix}_{_plain(key)}"] = _referring(schema, references)
        inputs = {key: _as_json(each, references, is_input=True) for key, each in signature.inputs.items()}
        outputs = {key: _as_json(each, references, is_input=False) for key, each in signature.outputs.items()}
        inputs = {key: each if key in signature.required else _or_null(each) for key, each in inputs.items()}
        self.schemas[f"{prefix}_input"] = _object(inputs, signature.required, additional=False)
        self.schemas[f"{prefix}_output"] = _object(outputs, signature.present)
        example = example_of(model)
        route = f"/predict/{name}/{model.version}" if model.version else f"/predict/{name}"
        operation = {
            "tags": [name],
            "operationId": f"predict_{prefix}",
            "summary": f"Call {name}" + (f", version {model.version}" if model.version else ""),
            "description": signature.description,
            "requestBody": {"required": True, "content": self._request_contents(model, prefix, example)},
            "responses": {"200": self._answer(model, prefix, example), **_errors(*ERRORS)},
        }
        self.paths[route] = {"post": {key: value for key, value in operation.items() if value != ""}}
        if not model.version and not model.config.decoupled and takes_instances(model):
            self.paths[f"/v1/models/{name}:predict"] = {"post": self._kserve(model, prefix, example)}

    def _request_contents(self, model: Model, prefix: str, example: Any) -> dict[str, Any]:
        one = _reference(f"{prefix}_input")
        many = _instances(one, "instances")
        schema = {"anyOf": [one, many]} if takes_instances(model) else one
        contents: dict[str, Any] = {"application/json": {"schema": schema}}
        if example is not None:
            contents["application/json"]["example"] = example["input"]
        if any(_is_file(each) for each in model.signature.inputs.values()):
            contents["multipart/form-data"] = {"schema": _form(model)}
        return contents

    def _answer(self, model: Model, prefix: str, example: Any) -> dict[str, Any]:
        one = _reference(f"{prefix}_output")
        many = _instances(one, "predictions")
        if model.config.decoupled:
            text = "The answers, one after the other."
            return {
                "description": text,
                "content": {
                    "application/x-ndjson": {"schema": {"type": "string", "description": "A line of JSON each."}},
                    "text/event-stream": {"schema": {"type": "string", "description": "An event with JSON each."}},
                },
            }
        content: dict[str, Any] = {"schema": {"anyOf": [one, many]} if takes_instances(model) else one}
        if example is not None and "output" in example:
            content["example"] = example["output"]
        return {"description": "The answer.", "content": {"application/json": content}}

    def _kserve(self, model: Model, prefix: str, example: Any) -> dict[str, Any]:
        name, only = model.config.model_name, model.only_input
        instance, prediction = _reference(f"{prefix}_input"), _reference(f"{prefix}_output")
        if only is not None and is_native(
            model.signature.inputs[only]
        ):  # bare values of it are answered with bare values of the only output
            instance = {"anyOf": [instance, self.schemas[f"{prefix}_input"]["properties"][only]]}
            outputs = self.schemas[f"{prefix}_output"]["properties"]
            prediction = {"anyOf": [prediction, *outputs.values()]} if len(outputs) == 1 else prediction
        request: dict[str, Any] = {"schema": _instances(instance, "instances")}
        if example is not None:
            request["example"] = {"instances": [example["input"]]}
        return {
            "tags": ["KServe v1"],
            "operationId": f"kserve_predict_{prefix}",
            "summary": f"Call {name} in the form of KServe v1 and Vertex AI",
            "requestBody": {"required": True, "content": {"application/json": request}},
            "responses": {
                "200": {
                    "description": "The answers.",
                    "content": {"application/json": {"schema": _instances(prediction, "predictions")}},
                },
                **_errors(*ERRORS),
            },
        }


def schemas_of(model: Model) -> tuple[Schema, Schema]:
    """The schemas of a model's input and output as JSON, each complete in itself, with ``$defs``."""
    writer = _Writer()
    writer.add(model)
    known = {**COMPONENTS, **writer.schemas}
    *_, taken, given = writer.schemas  # the definitions come before them
    return _complete(taken, known), _complete(given, known)


def _complete(name: str, known: Mapping[str, Schema]) -> Schema:
    found = {each: f"#/$defs/{each}" for each in known}
    schema: Schema = _referring(known[name], found)
    used: dict[str, Schema] = {}
    waiting = [schema]
    while waiting:
        for each in _references(waiting.pop()):
            if each not in used:
                used[each] = _referring(known[each], found)
                waiting.append(used[each])
    return {**schema, "$defs": used} if used else schema


def _references(schema: Any) -> Iterator[str]:
    """The names that a schema refers to."""
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].rpartition("/")[2]
        for each in schema.values():
            yield from _references(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from _references(each)


def takes_instances(model: Model) -> bool:
    """Whether the body may be ``{"instances": [...]}``: not if that is the name of an input."""
    return not model.config.decoupled and "instances" not in model.signature.inputs


# Schemas


TOLD = ("title", "description", "default", "examples")


def _or_null(schema: Schema) -> Schema:
    """The schema of an input that may be absent: null is the same."""
    told = {key: schema[key] for key in TOLD if key in schema}
    bare = {key: value for key, value in schema.items() if key not in told}
    return {"anyOf": [bare, {"type": "null"}], **told} if bare else schema


def _as_json(schema: Schema, references: Mapping[str, str], *, is_input: bool) -> Schema:
    """The schema of a property, as it is in JSON."""
    told: Schema = {key: schema[key] for key in TOLD if key in schema}
    if "shape" in schema:
        return {**_of_array(schema["dtype"], schema["shape"], is_input), **told}
    if "dtype" in schema:
        limits = {key: value for key, value in schema.items() if key not in ("dtype", "type")}
        return {**_of_dtype(schema["dtype"], is_input), **limits}
    found = _referring({key: value for key, value in schema.items() if key != "encoding"}, references)
    return found if "encoding" in schema else _of_values(found, is_input)


def _of_values(schema: Schema, is_input: bool) -> Schema:
    """A scalar or a list of scalars, which travel as a tensor of their own: with the limits of its dtype."""
    kind = schema.get("type")
    if kind == "array":
        return {**schema, "items": _of_values(schema["items"], is_input)}
    if "contentEncoding" in schema:
        return {**schema, "pattern": BASE64}
    if kind == "integer" and "enum" not in schema:
        return {"minimum": -(2**63), "maximum": 2**63 - 1, **schema}
    if kind == "number" and not is_input and "enum" not in schema:
        told = {key: value for key, value in schema.items() if key in ("title", "description")}
        rest = {key: value for key, value in schema.items() if key not in told}
        return {"anyOf": [rest, _reference(NON_FINITE)], **told}
    return schema


def _of_array(dtype: str, shape: Iterable[int], is_input: bool) -> Schema:
    schema = _of_dtype(dtype, is_input)
    sizes = list(shape)
    for size in reversed(sizes):
        schema = {"type": "array", "items": schema}
        if size != -1:
            schema |= {"minItems": size, "maxItems": size}
    if is_input and sizes == [1]:
        schema = {"anyOf": [schema, schema["items"]]}
    return schema


def _of_dtype(dtype: str, is_input: bool) -> Schema:
    if dtype in INTEGERS:
        sign, bits = INTEGERS[dtype]
        low, high = (0, 2**bits - 1) if sign else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return {"type": "integer", "minimum": low, "maximum": high}
    if dtype in FLOATS:
        return {"type": "number"} if is_input else {"anyOf": [{"type": "number"}, _reference(NON_FINITE)]}
    if dtype == "BOOL":
        return {"type": "boolean"}
    return {"anyOf": [{"type": "string"}, _reference(ENCODED)]}


def _referring(schema: Any, references: Mapping[str, str]) -> Any:
    """A copy whose ``$ref`` are those of the document."""
    if isinstance(schema, dict):
        return {
            key: references.get(str(value).rpartition("/")[2], value)
            if key == "$ref"
            else _referring(value, references)
            for key, value in schema.items()
        }
    return [_referring(each, references) for each in schema] if isinstance(schema, list) else schema


def _object(properties: Mapping[str, Schema], required: Iterable[str], additional: bool = True) -> Schema:
    schema: Schema = {"type": "object", "properties": dict(properties), "required": list(required)}
    return schema if additional else {**schema, "additionalProperties": False}


def _instances(each: Schema, member: str) -> Schema:
    rows = {"type": "array", "items": each, "minItems": 1}
    return _object({member: rows}, [member], additional=member == "predictions")


def _is_file(schema: Schema) -> bool:
    return schema.get("type") == "string" and schema.get("contentEncoding") == "base64"


def _form(model: Model) -> Schema:
    """The form with a part for each input: bytes and images as files, others as JSON or text."""
    parts = {
        name: {"type": "string", "contentMediaType": each.get("contentMediaType", "application/octet-stream")}
        if _is_file(each)
        else {"type": "string", **({"description": each["description"]} if "description" in each else {})}
        for name, each in model.signature.inputs.items()
    }
    return _object(parts, model.signature.required, additional=False)


def _reference(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)


# Examples


def example_of(model: Model) -> Any:
    """A request, with its answer if it is known; None if it would be large."""
    if model.signature.examples:
        first = model.signature.examples[0]
        if model.signature.result != OBJECT and "output" in first:
            return {**first, "output": {RESULT: first["output"]}}
        return first
    schemas = {name: model.signature.inputs[name] for name in model.signature.required}
    if sum(_size(each) for each in schemas.values()) > LARGEST_EXAMPLE:
        return None
    values = {name: _value(each, model.signature.definitions) for name, each in schemas.items()}
    return None if any(value is None for value in values.values()) else {"input": values}


def _size(schema: Schema) -> int:
    size = 1
    for each in schema.get("shape", ()):
        size *= DEFAULT_SIZE if each == -1 else each
    return size


def _value(schema: Schema, definitions: Mapping[str, Schema]) -> Any:
    """A value that fits a schema; None for one that is not obvious."""
    if "default" in schema or schema.get("examples"):
        return schema["examples"][0] if schema.get("examples") else schema["default"]
    if "enum" in schema:
        return schema["enum"][0]
    if "shape" in schema:
        value = _scalar(schema["dtype"])
        for size in reversed(schema["shape"]):
            value = [value] * (DEFAULT_SIZE if size == -1 else size)
        return value
    if "dtype" in schema:
        return schema.get("minimum", _scalar(schema["dtype"]))
    if any(key in schema for key in ("contentEncoding", "pattern", "encoding", "anyOf", "multipleOf")):
        return None
    match schema.get("type"):
        case "integer" | "number" as kind:
            low = schema.get("minimum", schema.get("exclusiveMinimum", schema.get("maximum", 1) - 1) + 1)
            return int(low) if kind == "integer" else float(low)
        case "boolean":
            return True
        case "string":
            return "text".ljust(schema.get("minLength", 0), ".")[: schema.get("maxLength", None)]
        case "array":
            item = _value(schema["items"], definitions)
            return None if item is None else [item] * max(1, schema.get("minItems", 0))
    return None


def _scalar(dtype: str) -> Any:
    if dtype == "BOOL":
        return True
    if dtype == "BYTES":
        return "text"
    return 1.0 if dtype in FLOATS else 1


# Responses


def _errors(*statuses: str) -> dict[str, Any]:
    return {status: {"$ref": f"#/components/responses/Error{status}"} for status in statuses}


def _error(text: str) -> dict[str, Any]:
    return _json(text, _reference(ERROR))


def _json(text: str, schema: Schema) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _server_paths() -> dict[str, Any]:
    return dict(_each_server_path())


def _each_server_path() -> Iterator[tuple[str, Any]]:
    live, ready = ({"200": _json("Yes.", _object({name: {"type": "boolean"}}, [name]))} for name in ("live", "ready"))
    yield "/health/live", _get("live", "Whether this front runs", live, is_open=True)
    ready |= _errors("503")
    yield "/health/ready", _get("ready", "Whether the server and its models are ready", ready, is_open=True)
    text = {
        "description": "In the text format of Prometheus.",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }
    yield (
        "/metrics",
        _get("metrics", "The figures of the server and of this front", {"200": text, **_errors("401")}),
    )


def _get(name: str, summary: str, responses: dict[str, Any], is_open: bool = False) -> dict[str, Any]:
    operation: dict[str, Any] = {"tags": ["server"], "operationId": name, "summary": summary, "responses": responses}
    return {"get": {**operation, "security": []} if is_open else operation}
