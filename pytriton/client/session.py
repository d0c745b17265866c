"""What all clients of a model share: their settings, what they know of the model, and the conversations about it."""

from __future__ import annotations

import copy
import itertools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pytriton.client.arguments import (
    DEFAULT_MAX_RESPONSE_BYTES,
    DEFAULT_OPTIONS,
    InferRequest,
    Parameters,
    check_headers,
    check_limit,
    check_metadata,
    check_model,
    check_timeout,
)
from pytriton.client.auth import Tls, TritonUrl, create_auth_headers, token_or_environment
from pytriton.client.codec import Arrays, Codec
from pytriton.client.conversations import Call, Conversation, Deadline, Shared, retried
from pytriton.client.exceptions import (
    PyTritonClientClosedError,
    PyTritonClientError,
    PyTritonClientInferenceServerError,
    PyTritonClientModelDoesntSupportBatchingError,
    PyTritonClientValueError,
)
from pytriton.client.tritonclients import bare_client, load_lib
from pytriton.client.waiting import fetch_model_config, model_arguments, wait_for_model, wait_for_server
from pytriton.model_config.parser import complete_config, is_partial_config
from pytriton.model_config.triton_model_config import TritonModelConfig

__all__ = ["DEFAULT_INFERENCE_TIMEOUT_S", "DEFAULT_INIT_TIMEOUT_S", "BaseModelClient", "ClientT", "ModelSession"]

DEFAULT_INIT_TIMEOUT_S = 300.0
DEFAULT_INFERENCE_TIMEOUT_S = 60.0
UNREACHABLE_S = 10.0  # of a first use without init_timeout_s

ClientT = TypeVar("ClientT", bound="BaseModelClient")


class ModelSession:
    """One model on one server, as one client sees it. Every method but :meth:`close` returns a conversation.

    Args:
        model_version: Its version, or None for the highest.
        init_timeout_s: Bounds waiting for server and model and fetching the configuration, all together.
        inference_timeout_s: Bounds one inference.
        model_config: The description, if it is known already.
        model_ready: Whether the model is known to be ready.

    Raises:
        PyTritonClientValueError: An argument is wrong.
    """

    def __init__(
        self,
        model_name: str,
        model_version: str | None,
        *,
        init_timeout_s: float | None,
        inference_timeout_s: float | None,
        model_config: TritonModelConfig | None,
        model_ready: bool,
    ) -> None:
        check_model(model_name, model_version)
        self.model_name = model_name
        self.model_version = model_version
        self.init_timeout_s = check_timeout("init_timeout_s", init_timeout_s, DEFAULT_INIT_TIMEOUT_S)
        self.unreachable_s = UNREACHABLE_S if init_timeout_s is None else math.inf
        self.inference_timeout_s = check_timeout(
            "inference_timeout_s", inference_timeout_s, DEFAULT_INFERENCE_TIMEOUT_S
        )
        self.model_ready = model_ready
        self.known_config = model_config
        self._codec = Codec(model_config) if model_config else None
        self._preparation = Shared(self._prepare)
        self._request_ids = itertools.count()
        self._stream_ids = os.urandom(4).hex()  # no other client has them, so a response is recognized
        self._closed = False

    def close(self) -> None:
        """Make every later conversation raise ``PyTritonClientClosedError``."""
        self._closed = True

    def wait_for_server(self, timeout_s: float) -> Conversation[None]:
        """Wait until the server is live and ready."""
        self._check_open()
        yield from wait_for_server(Deadline(check_timeout("timeout_s", timeout_s, self.init_timeout_s)))

    def wait_for_model(self, timeout_s: float) -> Conversation[None]:
        """Wait until the model is ready, even if it was before."""
        self._check_open()
        deadline = Deadline(check_timeout("timeout_s", timeout_s, self.init_timeout_s))
        yield from wait_for_model(self.model_name, self.model_version, deadline)
        self.model_ready = True

    def model_config(self) -> Conversation[TritonModelConfig]:
        """The model's description; waits for the model and fetches it unless it is known."""
        self._check_open()
        while self.known_config is None:  # again, if the model was unloaded meanwhile
            yield self._preparation
        return self.known_config

    def start(self) -> Conversation[Codec]:
        """Wait for the model and fetch its description, unless both are known; returns what encodes for it."""
        self._check_open()
        codec = self._codec
        if codec is None or not self.model_ready:
            codec = yield self._preparation
        return codec

    def infer(self, request: InferRequest) -> Conversation[Arrays]:
        """One inference: prepare, then encode, call and decode; these three for each part of a split batch."""
        codec = yield from self._codec_for(request)
        outputs = yield from self._infer(codec, request)
        return codec.with_texts(outputs) if request.options.text_outputs else outputs

    def call(self, request: InferRequest) -> Conversation[Any]:
        """One inference of a typed function, with its result."""
        codec = yield from self._codec_for(request)
        return codec.result((yield from self._infer(codec, request)))

    def _infer(self, codec: Codec, request: InferRequest) -> Conversation[Arrays]:
        if codec.decoupled:
            raise PyTritonClientInferenceServerError(
                f"model {self.model_name!r} is decoupled: it streams any number of responses; use DecoupledModelClient "
                "or AsyncioDecoupledModelClient"
            )
        arrays = request.named_inputs or codec.by_name(request.inputs)
        splits = request.options.split_batches and request.options.sequence_id is None
        if splits and not request.sample and codec.has_too_many_rows(arrays):
            return (yield from self._infer_parts(codec, codec.split(arrays), request))
        return (yield from self._infer_one(codec, arrays, request))

    def load_model(self, config: str | None, files: Mapping[str, bytes] | None) -> Conversation[None]:
        """Have the server load the model, and return when it has."""
        if config is not None and is_partial_config(config):
            self._check_open()
            config = complete_config(config, (yield from self._own_config()))
        yield from self._control("load_model", config=config, files=files)

    def unload_model(self) -> Conversation[None]:
        """Have the server unload the model; it may finish that later."""
        yield from self._control("unload_model")

    def stream(self, request: InferRequest) -> Conversation[tuple[Codec, Call]]:
        """Prepare a request for a stream of responses.

        Returns:
            What decodes each response, and the call to make. Its timeout bounds the wait for each response.
        """
        if request.options.retries or request.options.split_batches:
            raise PyTritonClientValueError("streams of responses are neither retried nor split; drop these options")
        codec = yield from self._codec_for(request)
        if not codec.decoupled:
            raise PyTritonClientInferenceServerError(
                f"model {self.model_name!r} is not decoupled: it answers each request once; use ModelClient "
                "or AsyncioModelClient"
            )
        arrays = request.named_inputs or codec.by_name(request.inputs)
        return codec, self._call("stream_infer", codec, arrays, request, f"-{self._stream_ids}")

    def _codec_for(self, request: InferRequest) -> Conversation[Codec]:
        codec = yield from self.start()
        if not request.sample and not codec.batching:
            raise PyTritonClientModelDoesntSupportBatchingError(
                f"model {self.model_name!r} does not support batching; use infer_sample"
            )
        return codec

    def _call(
        self, method: str, codec: Codec, arrays: Mapping[str, Any], request: InferRequest, id_suffix: str = ""
    ) -> Call:
        options, request_id = request.options, request.request_id
        arguments = {
            "model_name": self.model_name,
            "model_version": self.model_version or "",
            "inputs": codec.encode(arrays, sample=request.sample),
            "outputs": codec.requested_outputs,
            "parameters": request.parameters,
            "request_id": f"{next(self._request_ids)}{id_suffix}" if request_id is None else request_id,
            **options.arguments(),
        }
        timeout_s = options.inference_timeout_s or self.inference_timeout_s
        return Call(method, timeout_s, arguments, request.headers, options.compression)

    def _infer_one(self, codec: Codec, arrays: Mapping[str, Any], request: InferRequest) -> Conversation[Arrays]:
        call = self._call("infer", codec, arrays, request)
        retries = request.options.retries
        result = (yield from retried(call, retries, self._check_open)) if retries else (yield call)
        return codec.decode(result, sample=request.sample)

    def _infer_parts(self, codec: Codec, parts: Sequence[Arrays], request: InferRequest) -> Conversation[Arrays]:
        rows = [len(next(iter(part.values()))) for part in parts]
        answers = []
        start = 0
        for part, count in zip(parts, rows, strict=True):
            try:
                self._check_open()
                answers.append((yield from self._infer_one(codec, part, request)))
            except PyTritonClientError as error:
                failure = type(error)(
                    f"rows {start} to {start + count - 1} of the split batch of {sum(rows)} failed: {error.message}"
                )
                if isinstance(error, PyTritonClientInferenceServerError) and isinstance(failure, type(error)):
                    failure.code, failure.details = error.code, error.details
                raise failure from error
            start += count
        return codec.join(answers, rows)

    def _control(self, method: str, **arguments: Any) -> Conversation[None]:
        self._check_open()
        yield Call(method, self.init_timeout_s, {"model_name": self.model_name, **arguments})
        # The next use waits and fetches again: the configuration may be another one.
        self.model_ready, self.known_config, self._codec = False, None, None

    def _own_config(self) -> Conversation[Mapping[str, Any]]:
        """The server's configuration of the model; empty if the model is not loaded or the server refuses."""
        arguments = model_arguments(self.model_name, self.model_version)
        try:
            answer = yield Call("get_model_config", self.init_timeout_s, arguments)
        except PyTritonClientInferenceServerError:
            return {}
        return answer if isinstance(answer, Mapping) else {}

    def _prepare(self) -> Conversation[Codec]:
        deadline = Deadline(self.init_timeout_s)
        if not self.model_ready:
            yield from wait_for_model(
                self.model_name,
                self.model_version,
                deadline,
                fail_if_missing=True,
                unreachable_s=self.unreachable_s,
            )
            self.model_ready = True
        if self._codec is None:
            self.known_config = yield from fetch_model_config(self.model_name, self.model_version, deadline)
            self._codec = Codec(self.known_config)
        return self._codec

    def _check_open(self) -> None:
        if self._closed:
            raise PyTritonClientClosedError(f"the client of model {self.model_name!r} is closed; make a new one")


class BaseModelClient:
    """Settings and state of a client of one model.

    Args:
        url: Server, e.g. ``localhost``, ``http://localhost:8000`` or ``grpc://localhost:8001``; see
            :meth:`TritonUrl.from_url`.
        model_version: Version of the model; None uses the highest.
        lazy_init: True connects at the first use. False waits for the model and fetches its configuration at once.
        init_timeout_s: Bounds waiting for server and model and fetching the configuration, all together. None waits
            300 s for the model, and 10 s for a server that can be reached.
        inference_timeout_s: Bounds one inference, from the first byte sent to the last one received; 60 s.
        model_config: The model's configuration, if known; it is not fetched then.
        ensure_model_is_ready: False together with ``model_config`` does not wait for the model either.
        access_token: Token of a server with restricted endpoints; sent with every call. None takes the one in the
            environment variable ``PYTRITON_ACCESS_TOKEN``, if there is one.
        tls: Encrypts the connection; None does not encrypt. The URL's scheme stays ``http`` or ``grpc``.
        max_response_bytes: The longest response to take, as it travels and after decompression; 4 GiB by default, None
            for no limit. The limit of gRPC is 2 GiB. A longer response is a
            :class:`PyTritonClientInferenceServerError`, and over HTTP ends the connection.

    Raises:
        PyTritonClientInvalidUrlError: The URL cannot be understood.
        PyTritonClientValueError: Another argument is wrong.
    """

    def __init__(
        self,
        url: str,
        model_name: str,
        model_version: str | None = None,
        *,
        lazy_init: bool = True,
        init_timeout_s: float | None = None,
        inference_timeout_s: float | None = None,
        model_config: TritonModelConfig | None = None,
        ensure_model_is_ready: bool = True,
        access_token: str | None = None,
        tls: Tls | None = None,
        max_response_bytes: int | None = DEFAULT_MAX_RESPONSE_BYTES,
    ) -> None:
        self._url = TritonUrl.from_url(url)
        self._lazy_init = lazy_init
        self._access_token = token = token_or_environment(access_token)
        self._tls = tls
        self._max_response_bytes = check_limit("max_response_bytes", max_response_bytes)
        self._options = DEFAULT_OPTIONS
        self._headers = {} if token is None else create_auth_headers(token, self._url.scheme)
        self._session = ModelSession(
            model_name,
            model_version,
            init_timeout_s=init_timeout_s,
            inference_timeout_s=inference_timeout_s,
            model_config=model_config,
            model_ready=model_config is not None and not ensure_model_is_ready,
        )
        self._open()

    def _open(self) -> None:
        """Make the transport, and with ``lazy_init=False`` wait for the model, if the class can wait here."""

    @classmethod
    def from_existing_client(cls: type[ClientT], existing_client: BaseModelClient) -> ClientT:
        """A new client with the settings of another one, and with the model's configuration if that one knows it."""
        session = existing_client._session
        server, settings = existing_client._connection()
        client = cls(
            server,
            session.model_name,
            session.model_version,
            init_timeout_s=None if session.unreachable_s == UNREACHABLE_S else session.init_timeout_s,
            inference_timeout_s=session.inference_timeout_s,
            model_config=session.known_config,
            ensure_model_is_ready=not session.model_ready,
            **settings,
            **(existing_client._own_settings() if isinstance(existing_client, cls) else {}),
        )
        client._options = existing_client._options
        return client

    def _connection(self) -> tuple[Any, dict[str, Any]]:
        """The server as the constructor takes it, and the settings of the connection."""
        secrets = {"access_token": self._access_token, "tls": self._tls}
        return self._url.with_scheme, {**secrets, "max_response_bytes": self._max_response_bytes}

    def _own_settings(self) -> dict[str, Any]:
        """Arguments that only this class's constructor has."""
        return {}

    def with_options(self: ClientT, **changes: Any) -> ClientT:
        """A view of this client whose requests have other options.

        It shares the connection and the model's configuration with this client. Closing either closes both. ::

            urgent = client.with_options(priority=1)
            urgent.infer_sample(x)

        Args:
            changes: Fields of :class:`RequestOptions` to set; the others stay as they are here.

        Raises:
            PyTritonClientValueError: A value is out of its range or has another type.
            TypeError: An option does not exist.
        """
        view = copy.copy(self)
        view._options = replace(self._options, **changes)
        return view

    def _request(
        self,
        inputs: Sequence[Any],
        named_inputs: Mapping[str, Any],
        parameters: Parameters,
        headers: Parameters,
        *,
        sample: bool,
    ) -> InferRequest:
        """One inference, with this client's options."""
        if headers and self._url.scheme == "grpc":
            check_metadata(check_headers(headers))
        return InferRequest(inputs, named_inputs, parameters, headers, sample, self._options)

    _load_lib = staticmethod(load_lib)

    def get_lib(self) -> Any:
        """The tritonclient module for the URL's scheme, such as ``tritonclient.http``; for asyncio that of asyncio."""
        return self._load_lib(self._url.scheme)

    def create_client_from_url(self, url: str, network_timeout_s: float | None = None) -> Any:
        """A bare client of tritonclient; the caller closes it. Those for asyncio are made within an event loop.

        Args:
            network_timeout_s: As for :func:`pytriton.client.utils.create_client_from_url`; for asyncio, over HTTP, it
                bounds every call.
        """
        parsed = TritonUrl.from_url(url)
        lib = self.get_lib() if parsed.scheme == self._url.scheme else self._load_lib(parsed.scheme)
        return bare_client(lib, parsed, network_timeout_s)
