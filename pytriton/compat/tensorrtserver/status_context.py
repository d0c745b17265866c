"""The context that asks for the status of a server and its models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import json_format

from pytriton.compat.tensorrtserver.contexts import Context
from pytriton.compat.tensorrtserver.exceptions import InferenceServerException
from pytriton.compat.tensorrtserver.messages import (
    ModelReadyState,
    ServerReadyState,
    ServerStatus,
)
from pytriton.server.statistics import Duration, ModelStatistics, parse_statistics

__all__ = ["ServerStatusContext"]


class ServerStatusContext(Context):
    """Asks a server for its status.

    Args:
        url: As for :class:`Context`, like the other arguments.
        protocol: How to speak.
        model_name: Of the only model to ask for; None and the empty text ask for all.
        verbose: Print what is asked and answered.
        http_headers: Texts ``name:value``.
        headers: Name to value.
    """

    def __init__(
        self,
        url: str,
        protocol: int,
        model_name: str | None = None,
        verbose: bool = False,
        http_headers: Sequence[str] | None = (),
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(url, protocol, verbose, http_headers, headers=headers)
        self._model_name = model_name

    def get_server_status(self) -> Any:
        """The status, of several calls to the server, each of which it must allow.

        Returns:
            A ``ServerStatus``. Servers no longer tell their ``uptime_ns`` and how often they were asked for what
            (``..._stats``), which are 0. Of a model's requests they tell by batch size the ``compute`` alone, of
            executions: the ``success``, ``failed`` and ``queue`` of all requests are shared out among these sizes, so
            that their sums are right. A model that is not loaded has no ``config``.

        Raises:
            InferenceServerException: The server cannot be reached, does not allow it, or has no such model.
        """
        with self._request():
            live, ready = self._call("is_server_live"), self._call("is_server_ready")
            if not live:
                raise InferenceServerException("the server is not live")
            metadata = self._call("get_server_metadata")
            self._server_id = metadata["name"]
            status = ServerStatus(
                id=metadata["name"],
                version=metadata["version"],
                ready_state=ServerReadyState.SERVER_READY if ready else ServerReadyState.SERVER_INITIALIZING,
            )
            self._add_models(status)
        return status

    def _add_models(self, status: Any) -> None:
        index = [
            entry
            for entry in self._call("get_model_repository_index")
            if not self._model_name or entry["name"] == self._model_name
        ]
        if self._model_name and not index:
            raise InferenceServerException(f"the server has no model {self._model_name!r}")
        for entry in index:
            model = status.model_status[entry["name"]]
            if entry.get("version"):
                version = model.version_status[int(entry["version"])]
                version.ready_state = _ready_state(entry)
                version.ready_state_reason.message = entry.get("reason", "")
        loaded = dict.fromkeys(entry["name"] for entry in index if entry.get("state") == "READY")
        for name in loaded:
            config = self._call("get_model_config", model_name=name)
            json_format.ParseDict(config, status.model_status[name].config, ignore_unknown_fields=True)
        if loaded:
            statistics = self._call("get_inference_statistics", model_name=self._model_name or "")
            for counted in parse_statistics(statistics):
                if counted.name in loaded:
                    _add_statistics(status.model_status[counted.name].version_status[counted.version], counted)


def _ready_state(entry: Mapping[str, str]) -> int:
    name = f"MODEL_{entry.get('state', '')}"
    state: int = ModelReadyState.Value(name) if name in ModelReadyState.keys() else ModelReadyState.MODEL_UNKNOWN  # noqa: SIM118  (no dict)
    return state


def _add_statistics(version: Any, counted: ModelStatistics) -> None:
    version.model_execution_count = counted.execution_count
    version.model_inference_count = counted.inference_count
    if counted.last_inference is not None:
        version.last_inference_timestamp_milliseconds = round(counted.last_inference.timestamp() * 1000)
    executions, compute_ns = {}, {}
    for size, batch in counted.batches.items():
        phases = (batch.compute_input, batch.compute_infer, batch.compute_output)
        executions[size] = batch.compute_infer.count
        compute_ns[size] = sum(_ns(phase) for phase in phases)
        _set(version.infer_stats[size].compute, executions[size], compute_ns[size])
    for name, all_sizes in (("success", counted.success), ("failed", counted.fail), ("queue", counted.queue)):
        counts, times = _shares(all_sizes.count, executions), _shares(_ns(all_sizes), compute_ns)
        for size, count in counts.items():
            _set(getattr(version.infer_stats[size], name), count, times.get(size, 0))


def _shares(total: int, weights: Mapping[int, int]) -> dict[int, int]:
    """A total that is known of all batch sizes together, in proportion to the weights of each; the shares add up.

    Without weights, as when all requests failed, it is size 1's.
    """
    whole, shares = sum(weights.values()), {}
    if not whole:
        return {1: total} if total else {}
    for size, weight in weights.items():
        shares[size] = round(total * weight / whole)
        total, whole = total - shares[size], whole - weight
        if not whole:
            break
    return shares


def _ns(duration: Duration) -> int:
    return round(duration.total_s * 1e9)


def _set(duration: Any, count: int, total_time_ns: int) -> None:
    duration.count, duration.total_time_ns = count, total_time_ns
