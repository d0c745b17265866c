"""Folders of Hugging Face: whether they have a network that is theirs, and weights that run no code."""

from __future__ import annotations

from pathlib import Path

from pytriton.exceptions import PyTritonValidationError

__all__ = ["ADAPTER", "check_weights", "has_network"]

ADAPTER = "adapter_config.json"  # names another folder, or a network to fetch
SAFE = "*.safetensors"
PICKLED = "pytorch_model*.bin"


def has_network(folder: Path) -> bool:
    """Whether a folder, or one in it, has weights that are not those of an adapter of another network."""
    return not (folder / ADAPTER).exists() and any(each for name in (SAFE, PICKLED) for each in folder.rglob(name))


def check_weights(folder: Path) -> None:
    """Check that a folder has weights in safetensors.

    Raises:
        PyTritonValidationError: It has none.
    """
    if not any(folder.rglob(SAFE)):
        raise PyTritonValidationError(
            f"{folder} has no weights in safetensors, and pickled ones can run any code. If you know where they come "
            "from, allow that with trust=True (--trust); else have the model saved again by save_pretrained"
        )
