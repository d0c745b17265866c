"""The OpenAPI 3.1 description of the app, made from the configurations of the models."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import Any

from pytriton.rest.examples import example_of
from pytriton.rest.models import Model
from pytriton.rest.openai.schema import described
from pytriton.rest.schemas import (
    COMPONENTS,
    ERROR,
    as_json,
    form_of,
    instances_of,
    is_file,
    object_of,
    or_null,
    plain,
    reference,
    referring,
)
from pytriton.signature.schema import Schema, is_native

__all__ = ["describe", "schemas_of"]

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


def describe(models: Iterable[Model], root_path: str = "", *, asks_token: bool = False) -> dict[str, Any]:
    """The description of all routes.

    Args:
        models: Those of the server.
        root_path: Path below which callers find the routes, such as ``/models``.
        asks_token: Whether the models ask for a token.

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
    if asks_token:
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
        references = {key: f"#/components/schemas/{prefix}_{plain(key)}" for key in signature.definitions}
        for key, schema in signature.definitions.items():
            self.schemas[f"{prefix}_{plain(key)}"] = referring(schema, references)
        inputs = {key: as_json(each, references, is_input=True) for key, each in signature.inputs.items()}
        outputs = {key: as_json(each, references, is_input=False) for key, each in signature.outputs.items()}
        inputs = {key: each if key in signature.required else or_null(each) for key, each in inputs.items()}
        self.schemas[f"{prefix}_input"] = object_of(inputs, signature.required, additional=False)
        self.schemas[f"{prefix}_output"] = object_of(outputs, signature.present)
        example = example_of(signature)
        route = f"/predict/{name}/{model.version}" if model.version else f"/predict/{name}"
        operation = {
            "tags": [name],
            "operationId": f"predict_{prefix}",
            "summary": f"Call {name}" + (f", version {model.version}" if model.version else ""),
            "description": signature.description,
            "requestBody": {
                "required": bool(signature.required),
                "content": self._request_contents(model, prefix, example),
            },
            "responses": {"200": self._answer(model, prefix, example), **_errors(*ERRORS)},
        }
        self.paths[route] = {"post": {key: value for key, value in operation.items() if value != ""}}
        if not model.version and not model.config.decoupled and takes_instances(model):
            self.paths[f"/v1/models/{name}:predict"] = {"post": self._kserve(model, prefix, example)}

    def _request_contents(self, model: Model, prefix: str, example: Any) -> dict[str, Any]:
        one = reference(f"{prefix}_input")
        if model.record is not None:
            one = {"anyOf": [one, reference(f"{prefix}_{plain(model.record[1])}")]}
        many = instances_of(one, "instances")
        schema = {"anyOf": [*one.get("anyOf", [one]), many]} if takes_instances(model) else one
        contents: dict[str, Any] = {"application/json": {"schema": schema}}
        if example is not None:
            contents["application/json"]["example"] = example["input"]
        if any(is_file(each) for each in model.signature.inputs.values()):
            contents["multipart/form-data"] = {"schema": form_of(model)}
        return contents

    def _answer(self, model: Model, prefix: str, example: Any) -> dict[str, Any]:
        one = reference(f"{prefix}_output")
        many = instances_of(one, "predictions")
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
        instance, prediction = reference(f"{prefix}_input"), reference(f"{prefix}_output")
        if only is not None and is_native(
            model.signature.inputs[only]
        ):  # bare values of it are answered with bare values of the only output
            instance = {"anyOf": [instance, self.schemas[f"{prefix}_input"]["properties"][only]]}
            outputs = self.schemas[f"{prefix}_output"]["properties"]
            prediction = {"anyOf": [prediction, *outputs.values()]} if len(outputs) == 1 else prediction
        request: dict[str, Any] = {"schema": instances_of(instance, "instances")}
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
                    "content": {"application/json": {"schema": instances_of(prediction, "predictions")}},
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
    schema: Schema = referring(known[name], found)
    used: dict[str, Schema] = {}
    waiting = [schema]
    while waiting:
        for each in _references(waiting.pop()):
            if each not in used:
                used[each] = referring(known[each], found)
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


def _errors(*statuses: str) -> dict[str, Any]:
    return {status: {"$ref": f"#/components/responses/Error{status}"} for status in statuses}


def _error(text: str) -> dict[str, Any]:
    return _json(text, reference(ERROR))


def _json(text: str, schema: Schema) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _server_paths() -> dict[str, Any]:
    return dict(_each_server_path())


def _each_server_path() -> Iterator[tuple[str, Any]]:
    live, ready = ({"200": _json("Yes.", object_of({name: {"type": "boolean"}}, [name]))} for name in ("live", "ready"))
    yield "/health/live", _get("live", "Whether this app runs", live, is_open=True)
    ready |= _errors("503")
    yield "/health/ready", _get("ready", "Whether the server and its models are ready", ready, is_open=True)
    text = {
        "description": "In the text format of Prometheus.",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }
    yield (
        "/metrics",
        _get("metrics", "The figures of the server and of this app", {"200": text, **_errors("401")}),
    )


def _get(name: str, summary: str, responses: dict[str, Any], is_open: bool = False) -> dict[str, Any]:
    operation: dict[str, Any] = {"tags": ["server"], "operationId": name, "summary": summary, "responses": responses}
    return {"get": {**operation, "security": []} if is_open else operation}
