"""A model of a server in this process, and all of them by name."""

from __future__ import annotations

from ctypes import byref, c_bool, c_uint32
from typing import Any

from pytriton.inprocess.arguments import encode_name, integer
from pytriton.inprocess.enums import ModelBatchFlag, ModelTxnPropertyFlag
from pytriton.inprocess.exceptions import InvalidArgumentError, InvalidTypeError
from pytriton.inprocess.pending import AsyncResponseIterator, ResponseIterator
from pytriton.inprocess.request import InferenceRequest
from pytriton.inprocess.response import ResponseLayout

__all__ = ["LATEST", "Model", "ModelDictionary"]

LATEST = -1  # the version that the server chooses
VERSIONS = range(LATEST, 1 << 63)


class Model:
    """A model of a server, by name. Only its methods ask the server.

    Each method raises InvalidArgumentError while the server is not started, and the server's error if it has no such
    model, as a rule NotFoundError.

    Args:
        server: The :class:`~pytriton.inprocess.Server`, whose module imports this one.
        name: Its name.
        version: Its version; -1: the one that the server chooses.
        state: READY, UNAVAILABLE, LOADING, UNLOADING or None, as ``Server.models()`` found it.
        reason: The reason of that state, if the server gave one.

    Attributes:
        response_layouts: Decoded parts of its responses; see :mod:`pytriton.inprocess.response`.
    """

    def __init__(
        self, server: Any, name: str, version: int = LATEST, state: str | None = None, reason: str | None = None
    ) -> None:
        if type(version) is not int or version not in VERSIONS:
            version = integer("model_version", version, VERSIONS)
        if not isinstance(name, str):
            raise InvalidTypeError(f"a model's name is {name!r:.200}; give a text")
        self._key = encode_name(name), version
        self.response_layouts: dict[bytes, ResponseLayout] = {}
        self.server, self.name, self.version, self.state, self.reason = server, name, version, state, reason

    def __repr__(self) -> str:
        return f"Model(name={self.name!r}, version={self.version}, state={self.state!r})"

    def ready(self) -> bool:
        """Whether it takes requests."""
        ready = c_bool()
        with self.server.handle as (api, server):
            api.ServerModelIsReady(server, *self._key, byref(ready))
        return ready.value

    def metadata(self) -> dict[str, Any]:
        """Name, versions, platform, inputs and outputs."""
        return self._document("ServerModelMetadata")

    def config(self, config_version: int = 1) -> dict[str, Any]:
        """The configuration, as the server completed it; ``config_version`` is the version of its layout: 1."""
        return self._document("ServerModelConfig", integer("config_version", config_version, range(1 << 32)))

    def statistics(self) -> dict[str, Any]:
        """Numbers and nanoseconds of requests so far: ``{"model_stats": [...]}``, one entry for each version."""
        return self._document("ServerModelStatistics")

    def batch_properties(self) -> ModelBatchFlag:
        """Whether the first axis of its tensors is the batch."""
        return ModelBatchFlag(self._flags("ServerModelBatchProperties"))

    def transaction_properties(self) -> ModelTxnPropertyFlag:
        """Whether it gives one response to a request, or any number."""
        return ModelTxnPropertyFlag(self._flags("ServerModelTransactionProperties"))

    def create_request(self, **kwargs: Any) -> InferenceRequest:
        """A request for this model; the arguments are those of :class:`InferenceRequest`."""
        kwargs["model"] = self
        return InferenceRequest(**kwargs)

    def infer(
        self, inference_request: InferenceRequest | None = None, raise_on_error: bool = True, **kwargs: Any
    ) -> ResponseIterator:
        """Send a request. Returns at once an iterator that waits for the responses.

        Args:
            inference_request: The request; None: one made from ``kwargs``.
            raise_on_error: Whether to raise the error of a response, or to return the response.
            kwargs: As for :meth:`create_request`.

        Raises:
            TritonError: The server does not accept the request, or a field of it is wrong.
        """
        return ResponseIterator(self._request(inference_request, kwargs), raise_on_error)

    def async_infer(
        self, inference_request: InferenceRequest | None = None, raise_on_error: bool = True, **kwargs: Any
    ) -> AsyncResponseIterator:
        """As :meth:`infer`, for ``async for`` on the running loop.

        Raises:
            RuntimeError: No loop runs.
        """
        return AsyncResponseIterator(self._request(inference_request, kwargs), raise_on_error)

    def _request(self, request: InferenceRequest | None, kwargs: dict[str, Any]) -> InferenceRequest:
        if request is None:
            kwargs["model"] = self
            return InferenceRequest(**kwargs)
        if kwargs:
            raise InvalidArgumentError(f"give a request, or its fields as keywords, not both: {', '.join(kwargs)}")
        if not isinstance(request, InferenceRequest):
            raise InvalidTypeError(f"inference_request is {request!r:.200}; give an InferenceRequest")
        if not isinstance(request.model, Model):
            raise InvalidTypeError(
                f"the request's model is {request.model!r:.200}; give a Model, or use create_request()"
            )
        return request

    def _document(self, function: str, *arguments: int) -> dict[str, Any]:
        with self.server.handle as (api, server):
            found: dict[str, Any] = api.document(function, server, *self._key, *arguments)
        return found

    def _flags(self, function: str) -> int:
        flags = c_uint32()
        with self.server.handle as (api, server):
            getattr(api, function)(server, *self._key, byref(flags), None)
        return flags.value


class ModelDictionary(dict[tuple[str, int], Model]):
    """Models by name and version (-1: none); by name alone, the version that the server chooses."""

    def __init__(self, server: Any, index: list[dict[str, Any]]) -> None:
        self._server = server
        models = (
            Model(server, each["name"], int(each.get("version") or LATEST), each.get("state"), each.get("reason"))
            for each in index
        )
        super().__init__({(model.name, model.version): model for model in models})

    def __getitem__(self, key: str | tuple[str, int]) -> Model:
        return super().__getitem__(key) if isinstance(key, tuple) else self._named(key)

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) if isinstance(key, tuple) else any(name == key for name, _ in self)

    def get(self, key: Any, default: Any = None) -> Any:
        """As ``dict.get``, also by name alone."""
        try:
            return self[key]
        except KeyError:
            return default

    def _named(self, name: str) -> Model:
        if not any(name == found for found, _ in self):
            raise KeyError(name)
        return Model(self._server, name)
