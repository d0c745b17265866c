"""What the app knows of the server's models: their configurations, and what they take and return as JSON."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pytriton.client.arguments import check_model
from pytriton.client.exceptions import PyTritonClientValueError
from pytriton.client.repository_index import is_listed, suggestion
from pytriton.exceptions import PyTritonError, PyTritonModelConfigError
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.rest.errors import RestError, is_unknown_model, of_client, unavailable
from pytriton.rest.upstream import Upstream
from pytriton.signature.schema import VALUES, Schema, Signature

__all__ = ["Model", "ModelDirectory"]

FRESH_S = 2.0
"""A configuration that was confirmed within this time is used without asking the server."""


@dataclass(frozen=True)
class Model:
    """A model, as the routes see it.

    Attributes:
        config: Its configuration.
        version: The version; empty for the highest.
        signature: That of its typed function, or one made of its declared tensors.
    """

    config: TritonModelConfig
    version: str
    signature: Signature

    @classmethod
    def of(cls, config: TritonModelConfig, version: str = "") -> Model:
        """The model of a configuration."""
        return cls(config, version, Signature.of(config) or Signature.of_tensors(config))

    @property
    def only_input(self) -> str | None:
        """The name of the input, if there is one, or one that is required."""
        names = [*self.signature.inputs]
        if len(names) > 1:
            names = [*self.signature.required]
        return names[0] if len(names) == 1 else None

    @property
    def record(self) -> tuple[str, str] | None:
        """The only input and the name of its schema, if it is a record: a body may have the record's members instead.

        Not if one of these has the input's name, as a body with that name could be either.
        """
        if len(self.signature.inputs) != 1:
            return None
        ((name, schema),) = self.signature.inputs.items()
        key = str(schema.get("$ref", "")).rpartition("/")[2]
        members = self.signature.definitions.get(key, {}).get("properties", {})
        return (name, key) if members and name not in members else None

    @property
    def rows_of_a_request(self) -> int:
        """The most rows that one request may have.

        A function that is called with the values of one row may return arrays or lists of another size for each, and
        the outputs of a request are arrays: such rows travel as requests of their own, which the server merges.
        """
        sizes_differ = self.signature.passes == VALUES and any(map(_is_of_any_size, self.signature.outputs.values()))
        return self.config.max_batch_size if self.config.batching and not sizes_differ else 1


def _is_of_any_size(schema: Schema) -> bool:
    if schema.get("encoding") == "json":
        return False
    return -1 in schema["shape"] if "shape" in schema else schema.get("type") == "array"


class ModelDirectory:
    """The models of a server by name and version, with what the routes keep of each.

    A configuration is fetched when a model is first asked for. While it is used, it is confirmed in the background.

    Args:
        prepare: Makes what is kept of a model.
    """

    def __init__(self, upstream: Upstream, prepare: Callable[[Model], Any]) -> None:
        self._upstream = upstream
        self._prepare = prepare
        self._known: dict[tuple[str, str], _Known] = {}
        self._fetches: dict[tuple[str, str], asyncio.Task[_Known]] = {}

    async def find(self, name: str, version: str = "") -> Any:
        """What is kept of a model.

        Raises:
            RestError: There is no such model, it is not ready, or the server cannot be reached.
        """
        key = name, version
        known = self._known.get(key)
        if known is None:
            known = await self._fetched(key)
        elif time.monotonic() - known.confirmed > FRESH_S and key not in self._fetches:
            self._start(key)
        return known.prepared

    def is_known(self, name: str) -> bool:
        """Whether the server has said that it has a version of a model, at any time until now."""
        return (name, "") in self._known or any(known == name for known, _ in self._known)

    async def is_outdated(self, name: str, version: str, prepared: Any) -> bool:
        """Ask the server again; whether what was kept of a model is of another configuration than it has now."""
        return (await self._fetched((name, version))).prepared is not prepared

    async def ready(self) -> list[Model]:
        """All models that are ready, each with its highest version, sorted by name.

        Raises:
            RestError: The server cannot be reached.
        """
        try:
            index = await self._upstream.index()
        except PyTritonError as error:
            raise of_client(error) from error
        names = sorted({entry["name"] for entry in index if entry.get("state") == "READY"})
        keys = [(name, "") for name in names]
        found = await asyncio.gather(*map(self._confirmed, keys), return_exceptions=True)
        return [each.model for each in found if isinstance(each, _Known)]

    async def _confirmed(self, key: tuple[str, str]) -> _Known:
        known = self._known.get(key)
        if known is None or time.monotonic() - known.confirmed > FRESH_S:
            known = await self._fetched(key)
        return known

    async def _fetched(self, key: tuple[str, str]) -> _Known:
        """The model as the server has it now; tasks that ask at the same time share the answer."""
        task = self._fetches.get(key)
        if task is None or task.get_loop() is not asyncio.get_running_loop():
            task = self._start(key)
        return await asyncio.shield(task)

    def _start(self, key: tuple[str, str]) -> asyncio.Task[_Known]:
        task = self._fetches[key] = asyncio.get_running_loop().create_task(self._fetch(key))
        task.add_done_callback(_ignore_result)  # nobody may wait for it any more
        return task

    async def _fetch(self, key: tuple[str, str]) -> _Known:
        try:
            _check_key(*key)
            config = await self._upstream.model_config(*key)
        except PyTritonError as error:
            if isinstance(error, (RestError, PyTritonModelConfigError)) or is_unknown_model(error):
                self._known.pop(key, None)
            raise await self._explained(key, error) from error
        finally:
            self._fetches.pop(key, None)
        known = self._known.get(key)
        if known is None or known.model.config != config:
            model = Model.of(config, key[1])
            known = self._known[key] = _Known(model, self._prepare(model), 0.0)
        known.confirmed = time.monotonic()
        return known

    async def _explained(self, key: tuple[str, str], error: PyTritonError) -> RestError:
        """The error for a model whose configuration the server does not tell."""
        name, version = key
        if isinstance(error, (RestError, PyTritonModelConfigError)):
            return of_client(error)
        if not is_unknown_model(error):
            return of_client(error)
        try:
            index = await self._upstream.index()
        except PyTritonError:
            return RestError(404, "NOT_FOUND", f"there is no model {name!r}")
        text = f"there is no model {name!r}{f' of version {version}' if version else ''}"
        if is_listed(index, name, version or None):
            return unavailable(f"model {name!r} is not ready: {suggestion(index, name, version or None)}")
        if not await self._upstream.is_ready():
            return unavailable(f"{text}, and the server is not ready: models may still be loading; try again later")
        return RestError(404, "NOT_FOUND", text, others=suggestion(index, name, version or None))


@dataclass
class _Known:
    model: Model
    prepared: Any
    confirmed: float  # monotonic seconds


def _check_key(name: str, version: str) -> None:
    if "\0" in name:  # which the server's C functions cannot take
        raise RestError(404, "NOT_FOUND", f"there is no model {name!r}")
    try:
        check_model(name, version or None)
    except PyTritonClientValueError as error:
        raise RestError(404, "NOT_FOUND", str(error)) from error


def _ignore_result(task: asyncio.Task[_Known]) -> None:
    if not task.cancelled():
        task.exception()
