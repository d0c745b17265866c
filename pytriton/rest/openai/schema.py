"""OpenAI's routes in the description of the app."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pytriton.llm.kinds import CHAT, COMPLETION, EMBEDDING
from pytriton.llm.requests import ChatRequest, CompletionRequest, EmbeddingRequest
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.rest.openai.answers import kinds_of

__all__ = ["described"]

ERROR, MODEL = "OpenAIError", "OpenAIModel"
REFERENCES = "#/components/schemas/"
STATUSES = ("400", "401", "403", "404", "408", "413", "429", "500", "501", "503", "504")
ROUTES: tuple[tuple[str, str, type[Any], str, str], ...] = (
    ("/v1/chat/completions", CHAT, ChatRequest, "createChatCompletion", "Answer a chat"),
    ("/v1/completions", COMPLETION, CompletionRequest, "createCompletion", "Continue a text"),
    ("/v1/embeddings", EMBEDDING, EmbeddingRequest, "createEmbedding", "Embed texts"),
)
TEXT = {"type": "string"}
TEXT_OR_NULL = {"type": ["string", "null"]}


def described(configs: Iterable[TritonModelConfig]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The paths and schemas of the routes that models serve; none if there are no such models."""
    by_kind: dict[str, list[str]] = {}
    for config in configs:
        for kind in kinds_of(config):
            by_kind.setdefault(kind, []).append(config.model_name)
    if not by_kind:
        return {}, {}
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {
        ERROR: _object(
            {"error": _object({"message": TEXT, "type": TEXT, "param": TEXT_OR_NULL, "code": TEXT_OR_NULL})}
        ),
        MODEL: _object(
            {
                "id": {"type": "string"},
                "object": {"const": "model"},
                "created": {"type": "integer"},
                "owned_by": {"type": "string"},
            }
        ),
    }
    for path, kind, request, name, summary in ROUTES:
        if kind in by_kind:
            schema = request.model_json_schema(ref_template=REFERENCES + "{model}")
            schemas |= schema.pop("$defs", {})
            schema["properties"]["model"]["enum"] = by_kind[kind]
            schemas[request.__name__] = schema
            paths[path] = {"post": _operation(name, summary, request.__name__, streams=kind != EMBEDDING)}
    names = sorted({name for each in by_kind.values() for name in each})
    models = _object({"object": {"const": "list"}, "data": {"type": "array", "items": _reference(MODEL)}})
    paths["/v1/models"] = {"get": _reading("listModels", "The models of these routes", models)}
    paths["/v1/models/{model}"] = {
        "parameters": [{"name": "model", "in": "path", "required": True, "schema": {"enum": names}}],
        "get": _reading("retrieveModel", "One of these models", _reference(MODEL)),
    }
    return paths, schemas


def _operation(name: str, summary: str, request: str, *, streams: bool) -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}}
    if streams:
        content["text/event-stream"] = {"schema": {**_object({"data": TEXT}), "description": "Events, for `stream`."}}
    return {
        "tags": ["OpenAI"],
        "operationId": name,
        "summary": summary,
        "requestBody": {"required": True, "content": {"application/json": {"schema": _reference(request)}}},
        "responses": {"200": {"description": "As OpenAI's API answers.", "content": content}, **_errors(*STATUSES)},
    }


def _reading(name: str, summary: str, schema: dict[str, Any]) -> dict[str, Any]:
    answer = {"description": "The answer.", "content": {"application/json": {"schema": schema}}}
    errors = _errors("401", "403", "404", "429", "500", "503")
    return {"tags": ["OpenAI"], "operationId": name, "summary": summary, "responses": {"200": answer, **errors}}


def _errors(*statuses: str) -> dict[str, Any]:
    content = {"application/json": {"schema": _reference(ERROR)}}
    return {status: {"description": "An error.", "content": content} for status in statuses}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties]}


def _reference(name: str) -> dict[str, Any]:
    return {"$ref": REFERENCES + name}
