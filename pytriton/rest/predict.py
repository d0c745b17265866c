"""``/predict`` and KServe's v1: a request of JSON, an inference or several, a response of JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytriton.client.arguments import DEFAULT_OPTIONS, InferRequest
from pytriton.client.session import ModelSession
from pytriton.exceptions import PyTritonError
from pytriton.rest.bodies import ClientDisconnectedError, headers_of, read_body
from pytriton.rest.config import RestConfig
from pytriton.rest.conversion import Converter
from pytriton.rest.errors import RestError, of_client, send_error
from pytriton.rest.json_arrays import InvalidJsonError, dumps, parse
from pytriton.rest.models import Model, ModelDirectory
from pytriton.rest.upstream import Upstream

__all__ = ["Predict"]


class Predict:
    """The ASGI application of ``/predict/{model}`` and ``/predict/{model}/{version}``."""

    def __init__(self, upstream: Upstream, config: RestConfig) -> None:
        self._upstream = upstream
        self._config = config
        self.models = ModelDirectory(upstream, self._prepare)

    def _prepare(self, model: Model) -> Any:
        session = ModelSession(
            model.config.model_name,
            model.version or None,
            init_timeout_s=None,
            inference_timeout_s=self._config.timeout_s,
            model_config=model.config,
            model_ready=True,
        )
        return Served(model, session, Converter(model, self._config.max_depth))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        params = scope["path_params"]
        try:
            body = await read_body(receive, headers_of(scope), self._config.max_body_bytes)
            served = await self.models.find(params["model"], params.get("version", ""))
            try:
                value = parse(body)
            except InvalidJsonError as error:
                raise RestError(400, "INVALID_REQUEST", f"the body is no JSON: {error}") from error
            rows = served.converter.row(value, body.count(b"["))
            del value
            batching = served.model.config.batching
            arrays = rows if batching else {name: array[0, ...] for name, array in rows.items()}
            request = InferRequest((), arrays, None, None, not batching, DEFAULT_OPTIONS)
            outputs = await self._upstream.infer(served.session, request)
            if batching:
                outputs = {name: array[0, ...] for name, array in outputs.items()}
            answer = dumps(served.converter.result(outputs))
        except ClientDisconnectedError:
            return
        except PyTritonError as error:
            await send_error(send, of_client(error))
            return
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


@dataclass(frozen=True)
class Served:
    """What is kept of a model."""

    model: Model
    session: ModelSession
    converter: Converter
