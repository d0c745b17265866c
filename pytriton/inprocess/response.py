"""What a model answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytriton.inprocess.exceptions import TritonError
from pytriton.inprocess.tensor import Tensor

if TYPE_CHECKING:
    from pytriton.inprocess.model import Model

__all__ = ["InferenceResponse"]


@dataclass
class InferenceResponse:
    """One response.

    Attributes:
        model: The one that gave it, with its version.
        request_id: The request's; empty if it had none.
        parameters: What the model says beside its outputs.
        outputs: Tensors by name; none if there is an error.
        error: Why there are none.
        classification_label: None; the server's labels are not supported.
        final: Whether it is the last one.
    """

    model: Model
    request_id: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, Tensor] = field(default_factory=dict)
    error: TritonError | None = None
    classification_label: str | None = None
    final: bool = False
