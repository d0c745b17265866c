"""``/predict`` and KServe's v1 as ASGI applications: from the bytes of a request to those of its response."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytriton.client.codec import Arrays
from pytriton.rest.bodies import (
    FORM,
    JSON,
    NDJSON,
    NPY,
    OCTETS,
    SSE,
    accepted,
    media_type,
    read_body,
    read_npy,
    write_npy,
)
from pytriton.rest.config import RestConfig
from pytriton.rest.conversion import MOST_UNKNOWN
from pytriton.rest.errors import RestError, send_error
from pytriton.rest.forms import fields_of, parse_form, parse_query, raw_array
from pytriton.rest.inference import INSTANCES, CallDetails, Inference, Question, Read, Served
from pytriton.rest.json_arrays import InvalidJsonError, count_brackets, dumps, has_member, is_list, is_object, parse
from pytriton.rest.middleware import request_id, trace_headers
from pytriton.rest.streams import EVENTS, LINES, send_stream
from pytriton.rest.waits import CancelledOnDisconnect, ClientDisconnectedError
from pytriton.signature.validation import Problem, ValueMismatchError, shown

__all__ = ["KServePredict", "Predict", "refuse_other_sites"]

PREDICTIONS = "predictions"
IGNORED = ("parameters", "signature_name")  # of KServe's and Vertex AI's clients
ALLOWED = {b"allow": b"POST, OPTIONS"}


class Predict:
    """``/predict/{model}`` and ``/predict/{model}/{version}``.

    Args:
        inference: Calls the models.
        config: Options of the front.
    """

    def __init__(self, inference: Inference, config: RestConfig) -> None:
        self._inference = inference
        self._config = config

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        try:
            if scope["method"] != "POST":
                await _answer_method(scope["method"], send)
            else:
                await self._post(scope, receive, send)
        except ClientDisconnectedError:
            return
        except RestError as error:
            await send_error(send, error)

    async def _post(self, scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope["headers"])
        refuse_other_sites(scope, headers, self._config)
        body = await read_body(receive, headers, self._config.max_body_bytes, self._config.timeout_s)
        params, query, wanted = scope["path_params"], scope["query_string"], accepted(headers)
        read = self._reader(headers, query, body)
        details = CallDetails(request_id(scope), trace_headers(headers))
        async with CancelledOnDisconnect(receive):
            served, question, answer = await self._inference.answer(
                params["model"], params.get("version", ""), read, details
            )
        if isinstance(answer, AsyncGenerator):
            results = _each_json(served, answer)
            framing = EVENTS if wanted == SSE else LINES
            return await send_stream(results, framing, receive, send, self._config.heartbeat_s)
        if wanted in (SSE, NDJSON):
            texts = _listed(self._encoded(served, question, [row]) for row in answer)
            framing = EVENTS if wanted == SSE else LINES
            return await send_stream(texts, framing, receive, send, self._config.heartbeat_s)
        if wanted in ("", JSON):
            return await _send(send, JSON, self._encoded(served, question, answer))
        await _send_binary(send, wanted, served, question, answer, query)

    def _reader(self, headers: Mapping[bytes, bytes], query: bytes, body: bytes) -> Read:
        """What reads the rows of a body."""
        kind = media_type(headers)
        if kind == JSON:
            return lambda served: self._read_json(served, body)
        parts = {name: each for name, each in parse_query(query).items() if name != "output"}
        if kind == FORM:
            parts |= parse_form(headers[b"content-type"], body)
            return lambda served: Question([_form_row(served, parts)])
        if kind in (NPY, OCTETS) or kind.startswith("image/"):
            return lambda served: _read_raw(served, kind, body, parts)
        text = f"bodies of type {kind!r:.100} are not understood; send {JSON}, {FORM}, {NPY} or {OCTETS}"
        raise RestError(
            415, "UNSUPPORTED_MEDIA_TYPE", text, headers={"Accept-Post": f"{JSON}, {FORM}, {NPY}, {OCTETS}"}
        )

    def _read_json(self, served: Served, body: bytes) -> Question:
        value, lists = _parsed(body)
        if INSTANCES not in served.model.signature.inputs and has_member(value, INSTANCES):
            return _instances(served, value, lists, bare=False)
        return Question([served.converter.row(value, lists)])

    def _encoded(self, served: Served, question: Question, rows: Sequence[Arrays]) -> bytes:
        try:
            results = [served.converter.result(row) for row in rows]
        except ValueMismatchError as error:
            raise RestError(500, "INTERNAL", f"an output is not what its model says: {error}") from error
        if not question.is_batch or len(rows) < len(question.rows):
            return dumps(results[0])
        return dumps({PREDICTIONS: results})


class KServePredict(Predict):
    """``/v1/models/{model}:predict``, of KServe and Vertex AI: always ``instances``, which may be bare values.

    An instance that is no object is the value of the model's only input, and its prediction that of the only output.
    """

    def _read_json(self, served: Served, body: bytes) -> Question:
        value, lists = _parsed(body)
        if not has_member(value, INSTANCES):
            raise ValueMismatchError([Problem((INSTANCES,), "a list of instances", "nothing")])
        return _instances(served, value, lists, bare=True)

    def _encoded(self, served: Served, question: Question, rows: Sequence[Arrays]) -> bytes:
        results: list[Any] = [served.converter.result(row) for row in rows]
        if question.is_bare:
            results = [next(iter(each.values())) if len(each) == 1 else each for each in results]
        return dumps({PREDICTIONS: results})


# Requests.


def _parsed(body: bytes) -> tuple[Any, int]:
    """The value of a body, and how many lists it has."""
    try:
        return parse(body), count_brackets(body)
    except InvalidJsonError as error:
        raise RestError(400, "INVALID_REQUEST", f"the body is no JSON: {error}") from error


def _instances(served: Served, value: Any, lists: int, *, bare: bool) -> Question:
    rows = []
    instances = value[INSTANCES]
    others = [name for name in value.keys() if name not in (INSTANCES, *IGNORED)]  # noqa: SIM118 (simdjson has no other)
    found = [Problem((name,), f'"{INSTANCES}" alone', "another name") for name in others[:MOST_UNKNOWN]]
    if not is_list(instances) or not len(instances):
        raise ValueMismatchError(
            [*found, Problem((INSTANCES,), "a list of objects, with one or more", _kind(instances))]
        )
    only = served.model.only_input if bare else None
    is_bare = False
    for index, each in enumerate(instances):
        if only is not None and not is_object(each):
            each, is_bare = {only: each}, True
        try:
            rows.append(served.converter.row(each, -1, (INSTANCES, index)))
        except ValueMismatchError as error:
            found += error.problems
    if found:
        raise ValueMismatchError(found)
    return Question(rows, is_batch=True, is_bare=is_bare)


def _kind(value: Any) -> str:
    return "an empty list" if is_list(value) else "an object" if is_object(value) else shown(value)


def _form_row(served: Served, parts: Mapping[str, Any]) -> Arrays:
    return served.converter.row(fields_of(served.model.signature.inputs, parts))


def _read_raw(served: Served, kind: str, body: bytes, parts: Mapping[str, Any]) -> Question:
    """The rows of a body that is one input; others may be parameters of the URL."""
    inputs = served.model.signature.inputs
    names = [name for name in served.model.signature.required if name not in parts] or [*inputs]
    if len(names) != 1:
        text = f"a body of type {kind} is the model's only input, but it has {', '.join(map(repr, inputs)) or 'none'}"
        raise RestError(415, "UNSUPPORTED_MEDIA_TYPE", f"{text}; send JSON or a form, or others in the URL")
    (name,) = names
    schema = inputs[name]
    is_file = "contentEncoding" in schema
    if not is_file and "shape" not in schema and schema.get("type") != "array":
        raise RestError(415, "UNSUPPORTED_MEDIA_TYPE", f"input {name!r} is no array and no bytes; send JSON")
    others = fields_of(inputs, parts)
    if is_file:
        return Question([served.converter.row({**others, name: body})])
    if schema.get("dtype") == "BYTES" or (kind != NPY and kind != OCTETS):
        raise RestError(415, "UNSUPPORTED_MEDIA_TYPE", f"input {name!r} cannot be sent as {kind}; send JSON")
    try:
        array = read_npy(body) if kind == NPY else raw_array(schema, body, (name,))
    except (ValueError, OverflowError, SyntaxError, TypeError) as error:
        if isinstance(error, ValueMismatchError):
            raise
        raise RestError(400, "INVALID_REQUEST", f"the body is no .npy file: {error}") from error
    rank = len(schema["shape"]) if "shape" in schema else 1
    if served.model.config.batching and array.ndim == rank + 1 and len(array):
        rows = [served.converter.row({**others, name: each}, -1) for each in array]
        return Question(rows, is_batch=True)
    return Question([served.converter.row({**others, name: array})])


def refuse_other_sites(scope: Any, headers: Mapping[bytes, bytes], config: RestConfig) -> None:
    """Refuse what a browser sends for a page of another origin, also where it does not ask before it sends.

    Raises:
        RestError: It is such a request, and ``config.cors`` does not list the origin.
    """
    if scope.get("root_path", "") != config.root_path:
        return  # the front is mounted, in an application with its own rules
    allowed = config.cors
    if headers.get(b"sec-fetch-site", b"none") in (b"none", b"same-origin") or "*" in allowed:
        return
    origin = headers.get(b"origin", b"").decode("latin-1")
    if origin not in allowed:
        raise RestError(403, "FORBIDDEN", f"pages of {origin or 'other sites'} may not call this; see RestConfig.cors")


# Responses.


async def _answer_method(method: str, send: Any) -> None:
    if method != "OPTIONS":
        allow = {"Allow": ALLOWED[b"allow"].decode()}
        raise RestError(405, "METHOD_NOT_ALLOWED", f"{method} is not allowed here; use POST", headers=allow)
    await send({"type": "http.response.start", "status": 204, "headers": [*ALLOWED.items()]})
    await send({"type": "http.response.body", "body": b""})


async def _send(send: Any, kind: str, body: bytes, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
    own = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": 200, "headers": own})
    await send({"type": "http.response.body", "body": body})


async def _each_json(served: Served, responses: AsyncGenerator[Arrays, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(responses):
        async for outputs in responses:
            try:
                yield dumps(served.converter.result(outputs))
            except ValueMismatchError as error:
                raise RestError(500, "INTERNAL", f"an output is not what its model says: {error}") from error


async def _listed(texts: Any) -> AsyncGenerator[bytes, None]:
    for text in texts:
        yield text


async def _send_binary(
    send: Any, wanted: str, served: Served, question: Question, rows: Sequence[Arrays], query: bytes
) -> None:
    """Answer with one output, as ``.npy``, as raw bytes, or as the bytes that it holds."""
    name = _output_name(served, query)
    schema = served.model.signature.outputs[name]
    arrays = [row[name] for row in rows if name in row]
    if not arrays:
        raise RestError(406, "NOT_ACCEPTABLE", f"the result has no {name!r}")
    if "contentEncoding" in schema and not question.is_batch and wanted != NPY:
        (content,) = arrays[0].reshape(-1).tolist()
        kind = "image/png" if schema.get("contentMediaType") == "image/*" else OCTETS
        return await _send(send, wanted if wanted == OCTETS else kind, content)
    array: NDArray[Any] = np.stack(arrays) if question.is_batch else arrays[0]
    if array.dtype.hasobject or wanted not in (NPY, OCTETS):
        raise RestError(406, "NOT_ACCEPTABLE", f"output {name!r} cannot be sent as {wanted}; accept {JSON}")
    if wanted == NPY:
        return await _send(send, NPY, write_npy(array))
    shape = ",".join(map(str, array.shape)).encode()
    headers = [(b"x-shape", shape), (b"x-dtype", array.dtype.name.encode())]
    await _send(send, OCTETS, np.ascontiguousarray(array).tobytes(), headers)


def _output_name(served: Served, query: bytes) -> str:
    outputs = served.model.signature.outputs
    given = parse_query(query).get("output")
    if given is None and len(outputs) == 1:
        return next(iter(outputs))
    listed = ", ".join(map(repr, outputs))
    if given is None:
        raise RestError(406, "NOT_ACCEPTABLE", f"the model has outputs {listed}; say which one with ?output=")
    name = given[0].content.decode("utf-8", "replace")
    if name not in outputs:
        raise RestError(406, "NOT_ACCEPTABLE", f"the model has no output {name!r}; it has {listed}")
    return name
