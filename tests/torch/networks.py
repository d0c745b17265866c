"""Networks of PyTorch in files, with what PyTorch answers; the rows are those of ``tests/unit/saved/files.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch

from tests.unit.saved.files import Saved

BATCH = torch.export.Dim("batch")


class Layer(torch.nn.Module):
    """Scores of three classes, and the number of the best one."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(12, dtype=torch.float32).reshape(4, 3) / 10)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        scores = x @ self.weight
        return {"scores": scores, "best": scores.argmax(1)}


def answer(rows: np.ndarray) -> dict[str, np.ndarray]:
    with torch.no_grad():
        return {name: value.numpy() for name, value in Layer()(torch.from_numpy(rows.astype(np.float32))).items()}


def exported(network: torch.nn.Module, path: Path, *examples: Any, **shapes: Any) -> Path:
    """Write a program whose inputs have these open axes; those of the first are the batch's if none are told."""
    torch.export.save(torch.export.export(network, examples, dynamic_shapes=shapes or None), path)
    return path


def of_export(folder: Path) -> Saved:
    path = exported(Layer(), folder / "program.pt2", torch.zeros(2, 4), x={0: BATCH})
    return Saved(path, {"trust": True}, lambda row: {"x": row.tolist()}, answer)


def of_script(folder: Path) -> Saved:
    torch.jit.script(Layer()).save(folder / "script.pt")
    options = {"trust": True, "inputs": {"x": "float32:4"}}
    return Saved(folder / "script.pt", options, lambda row: {"x": row.tolist()}, answer)


def of_weights(folder: Path) -> Saved:
    safetensors.torch.save_file(Layer().state_dict(), folder / "layer.safetensors")
    options = {"module": f"{__name__}:Layer", "inputs": {"x": "float32:4"}}
    return Saved(folder / "layer.safetensors", options, lambda row: {"x": row.tolist()}, answer)


NETWORKS = {"export": of_export, "script": of_script, "weights": of_weights}
