"""Ensembles: models that the server runs one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["EnsembleStep"]


@dataclass(frozen=True)
class EnsembleStep:
    """One model of an ensemble.

    Args:
        input_map: Input of the model to tensor of the ensemble.
        output_map: Output of the model to tensor of the ensemble.
        model_version: -1 is the highest.
    """

    model_name: str
    input_map: Mapping[str, str] = field(default_factory=dict)
    output_map: Mapping[str, str] = field(default_factory=dict)
    model_version: int = -1
