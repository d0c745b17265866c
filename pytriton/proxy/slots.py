"""The batches of a model whose sequences have slots: requests that nobody made are taken out.

A batch of the direct strategy has a place for each sequence of the instance. Where a sequence has no request just now,
the server puts one with arbitrary inputs, so that the others keep their places. An input that it adds to every request
says which are real.
"""

from __future__ import annotations

from typing import Any, Protocol

import triton_python_backend_utils as pb_utils

__all__ = ["Slots", "ready_input"]


class Batches(Protocol):
    """Answers batches: :class:`Turns` or :class:`Streams`."""

    def execute(self, requests: list[Any]) -> list[Any] | None: ...

    def close(self) -> None: ...


def ready_input(model_config: dict[str, Any]) -> str | None:
    """Name of the input that says whether a request is real; None if all are."""
    for item in model_config.get("sequence_batching", {}).get("control_input", ()):
        if any(control["kind"] == "CONTROL_SEQUENCE_READY" for control in item["control"]):
            return str(item["name"])
    return None


class Slots:
    """Hands the real requests of each batch on.

    Args:
        batches: Answers them.
        ready: Name of the input that says which are real; it has one element, 0 or 1.
    """

    def __init__(self, batches: Batches, ready: str) -> None:
        self._batches = batches
        self._ready = ready
        self.close = batches.close

    def execute(self, requests: list[Any]) -> list[Any] | None:
        """Answer a batch: with the responses, or with None if they are sent later."""
        real = [self._is_real(request) for request in requests]
        made = [request for request, is_real in zip(requests, real, strict=True) if is_real]
        answers = self._batches.execute(made) if made else []
        if answers is None:
            for request, is_real in zip(requests, real, strict=True):
                if not is_real:
                    final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
                    request.get_response_sender().send(pb_utils.InferenceResponse([]), flags=final)
            return None
        each = iter(answers)
        return [next(each) if is_real else pb_utils.InferenceResponse([]) for is_real in real]

    def _is_real(self, request: Any) -> bool:
        return any(tensor.name() == self._ready and tensor.as_numpy().any() for tensor in request.inputs())
