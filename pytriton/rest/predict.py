"""``/predict`` and KServe's v1 as ASGI applications: from the bytes of a request to those of its response."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
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
from pytriton.rest.costs import SMALL_BYTES, Charges, charges_of
from pytriton.rest.errors import RestError, send_error
from pytriton.rest.forms import Part, fields_of, parse_form, parse_query, raw_array
from pytriton.rest.inference import INSTANCES, CallDetails, Inference, Question, Read, Served
from pytriton.rest.json_arrays import InvalidJsonError, count_brackets, dumps, has_member, is_list, is_object, parse
from pytriton.rest.middleware import request_id, trace_headers
from pytriton.rest.permits import as_key_may_see
from pytriton.rest.streams import EVENTS, LINES, send_stream
from pytriton.rest.tables import table_in
from pytriton.rest.tokens import Spending, of_rows
from pytriton.rest.waits import CancelledOnDisconnect, ClientDisconnectedError
from pytriton.signature.problems import Path, Problem, Problems, ValueMismatchError, shown

__all__ = ["KServePredict", "Predict", "counted", "in_turn", "reserving"]

PREDICTIONS = "predictions"
IGNORED = ("parameters", "signature_name")  # of KServe's and Vertex AI's clients
MOST_INSTANCES = 10_000  # each takes a kilobyte and more, however few bytes it has in JSON
COPIES = 2  # of arrays: merged with other rows, and as they are sent
ALLOWED = {b"allow": b"POST, OPTIONS"}


class Predict:
    """``/predict/{model}`` and ``/predict/{model}/{version}``."""

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
            await send_error(send, as_key_may_see(scope, error))

    async def _post(self, scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope["headers"])
        charges = charges_of(scope)
        body = await read_body(receive, headers, self._config.max_body_bytes, self._config.timeout_s, charges)
        params, query, wanted = scope["path_params"], scope["query_string"], accepted(headers)
        read = in_turn(self._reader(headers, query, body, charges), len(body), charges)
        details = CallDetails(request_id(scope), trace_headers(headers), charges)
        with Spending.of(scope) as spending:
            if spending:
                read = reserving(read, spending)
            async with CancelledOnDisconnect(receive):
                served, question, answer = await self._inference.answer(
                    params["model"], params.get("version", ""), read, details
                )
            if isinstance(answer, AsyncGenerator):
                results = _each_json(served, counted(answer, spending) if spending else answer)
                framing = EVENTS if wanted == SSE else LINES
                return await send_stream(results, framing, receive, send, self._config.heartbeat_s)
            if spending:
                spending.count_rows(answer)
        if wanted in (SSE, NDJSON):
            texts = _each(self._encoded(served, question, [row]) for row in answer)
            framing = EVENTS if wanted == SSE else LINES
            return await send_stream(texts, framing, receive, send, self._config.heartbeat_s)
        if wanted in ("", JSON):
            return await _send(send, JSON, self._encoded(served, question, answer))
        await _send_binary(send, wanted, served, question, answer, query)

    def _reader(
        self, headers: Mapping[bytes, bytes], query: bytes, body: bytes, charges: Charges
    ) -> Callable[[Served], Question]:
        """What reads the rows of a body."""
        kind = media_type(headers)
        if kind == JSON:
            return lambda served: self._read_json(served, body, charges)
        parts = {name: each for name, each in parse_query(query).items() if name != "output"}
        if kind == FORM:
            return lambda served: _read_form(served, headers[b"content-type"], body, parts, charges)
        if kind in (NPY, OCTETS) or kind.startswith("image/"):
            return lambda served: _read_raw(served, kind, body, parts)
        text = f"bodies of type {kind!r:.100} are not understood; send {JSON}, {FORM}, {NPY} or {OCTETS}"
        raise RestError(
            415, "UNSUPPORTED_MEDIA_TYPE", text, headers={"Accept-Post": f"{JSON}, {FORM}, {NPY}, {OCTETS}"}
        )

    def _read_json(self, served: Served, body: bytes, charges: Charges) -> Question:
        if not body and not served.model.signature.required:
            return Question([served.converter.row({})])
        with charges.reading(body) as charge_objects:
            value = _parsed(body, charge_objects)
            if INSTANCES not in served.model.signature.inputs and has_member(value, INSTANCES):
                return _instances(served, value, charge_objects, bare=False)
            if table := table_in(value, served.model, charge_objects):
                path, instances = table
                return _listed(served, instances, path, charge_objects, Problems(), is_bare=True)
            return Question([served.converter.row(value, count_brackets(body), (), charge_objects)])

    def _encoded(self, served: Served, question: Question, rows: Sequence[Arrays]) -> bytes:
        try:
            results = [served.converter.result(row) for row in rows]
        except ValueMismatchError as error:
            raise RestError(500, "INTERNAL", f"an output is not what its model says: {error}") from error
        if not question.is_batch or len(rows) < len(question.rows):
            return dumps(results[0])
        return dumps({PREDICTIONS: _bare(results) if question.is_bare else results})


class KServePredict(Predict):
    """``/v1/models/{model}:predict``, of KServe and Vertex AI: always ``instances``, which may be bare values.

    An instance that is no object is the value of the model's only input, and its prediction that of the only output.
    """

    def _read_json(self, served: Served, body: bytes, charges: Charges) -> Question:
        with charges.reading(body) as charge_objects:
            value = _parsed(body, charge_objects)
            if not has_member(value, INSTANCES):
                raise ValueMismatchError([Problem((INSTANCES,), "a list of instances", "nothing")])
            return _instances(served, value, charge_objects, bare=True)

    def _encoded(self, served: Served, question: Question, rows: Sequence[Arrays]) -> bytes:
        results = [served.converter.result(row) for row in rows]
        return dumps({PREDICTIONS: _bare(results) if question.is_bare else results})


def _bare(results: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The values of the only output in place of objects."""
    return [next(iter(each.values())) if len(each) == 1 else each for each in results]


# Requests.


def in_turn(read: Callable[[Served], Question], size: int, charges: Charges) -> Read:
    """Reads a body of some bytes; a large one on another thread, when it is its client's turn."""

    def charged(served: Served) -> Question:
        question = read(served)
        if size >= SMALL_BYTES:
            charges.charge(COPIES * sum(array.nbytes for row in question.rows for array in row.values()))
        return question

    async def read_in_turn(served: Served) -> Question:
        return await charges.run(size, partial(charged, served))

    return read_in_turn


def reserving(read: Read, spending: Spending) -> Read:
    """Reads a request, and reserves the tokens that it will use up of its key."""

    async def read_and_reserve(served: Served) -> Question:
        question = await read(served)
        estimate = of_rows(served.model.config, question.rows)
        if estimate is not None:
            spending.begin(estimate)
        return question

    return read_and_reserve


async def counted(responses: AsyncGenerator[Arrays, None], spending: Spending) -> AsyncGenerator[Arrays, None]:
    """The responses of a model that streams; each is counted before it is passed on."""
    async with aclosing(responses):
        async for outputs in responses:
            spending.count_row(outputs)
            yield outputs


def _parsed(body: bytes, charge_objects: Callable[[], None]) -> Any:
    """The value of a body."""
    try:
        return parse(body, charge_objects)
    except InvalidJsonError as error:
        raise RestError(400, "INVALID_REQUEST", f"the body is no JSON: {error}") from error


def _instances(served: Served, value: Any, charge_objects: Callable[[], None], *, bare: bool) -> Question:
    instances = value[INSTANCES]
    others = [name for name in value.keys() if name not in (INSTANCES, *IGNORED)]  # noqa: SIM118 (simdjson has no other)
    found = Problems(Problem((name,), f'"{INSTANCES}" alone', "another name") for name in others)
    if not is_list(instances) or not len(instances):
        found.add([Problem((INSTANCES,), "a list of objects, with one or more", _kind(instances))])
        raise found.error()
    only = served.model.only_input if bare else None
    return _listed(served, instances, (INSTANCES,), charge_objects, found, only)


def _listed(
    served: Served,
    instances: Sequence[Any],
    path: Path,
    charge_objects: Callable[[], None],
    found: Problems,
    only: str | None = None,
    is_bare: bool = False,
) -> Question:
    """The rows of a list.

    Args:
        path: Of the list, for messages.
        found: What is wrong with the request beside the rows.
        only: The input whose values may stand in the list in place of objects.
        is_bare: Whether the client expects a value in place of an object with one output.
    """
    if len(instances) > MOST_INSTANCES:
        text = f"the request has {len(instances)} instances, and may have {MOST_INSTANCES}; send several requests"
        raise RestError(413, "BODY_TOO_LARGE", text)
    rows = []
    for index, each in enumerate(instances):
        if only is not None and not is_object(each):
            each, is_bare = {only: each}, True
        try:
            rows.append(served.converter.row(each, -1, (*path, index), charge_objects))
        except ValueMismatchError as error:
            found.add_error(error)
            if found.is_enough:
                break
    if found:
        raise found.error()
    return Question(rows, is_batch=True, is_bare=is_bare)


def _kind(value: Any) -> str:
    return "an empty list" if is_list(value) else "an object" if is_object(value) else shown(value)


def _read_form(
    served: Served, content_type: bytes, body: bytes, others: Mapping[str, list[Part]], charges: Charges
) -> Question:
    with charges.charged(len(body)):  # the parts are copies
        parts = {**others, **parse_form(content_type, body)}
        return Question([served.converter.row(fields_of(served.model.signature.inputs, parts, charges))])


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


async def _each(texts: Any) -> AsyncGenerator[bytes, None]:
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
