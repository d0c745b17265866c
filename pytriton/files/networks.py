"""Folders of Hugging Face: whether they have a network that is theirs, and weights that run no code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytriton.exceptions import PyTritonValidationError

__all__ = ["ADAPTER", "check_folder", "check_numbers", "check_tokenizer", "has_network", "is_safetensors"]

ADAPTER = "adapter_config.json"  # names another folder, or a network to fetch
SAFE = "*.safetensors"
PICKLED = "pytorch_model*.bin"
INDEX, SHARD = ".safetensors.index.json", re.compile(r"[\w.-]+\.safetensors")
MODULES, ROUTERS = "modules.json", ("router_config.json", "wordembedding_config.json")
# Those of Sentence Transformers that make no others, and import nothing by a name in the folder.
MODULE = re.compile(
    r"sentence_transformers\.([a-z_]+\.)*(Transformer|Pooling|Normalize|Dense|Dropout|LayerNorm|WeightedLayerPooling)"
)
TOKENIZERS = ("tokenizer*", "vocab*", "*.model", "merges.txt", "*.tiktoken", "tekken.json")
TRUSTING = "trust_remote_code"
# The largest numbers of settings, by the ends of their names: more would take all memory, or never end.
LARGEST = {
    r"n_layer|layers": 10_000,
    r"num_beams|num_beam_groups|num_return_sequences": 1_000,
    r"max_length|min_length|max_new_tokens|min_new_tokens": 10_000_000,
    r"num_labels|n_head|heads|experts|n_embd|n_positions|embeddings|size|dim|width|channels": 10_000_000,
}


def has_network(folder: Path) -> bool:
    """Whether a folder, or one in it, has weights that are not those of an adapter of another network."""
    return not (folder / ADAPTER).exists() and any(each for name in (SAFE, PICKLED) for each in folder.rglob(name))


def is_safetensors(path: Path, head: bytes) -> bool:
    """Whether a file has weights in safetensors, by its first bytes; not those of an adapter of another network."""
    return head[5:10] == b'\0\0\0{"' and not (path.parent / ADAPTER).exists()


def check_tokenizer(folder: Path) -> None:
    """Check that a folder has a file of a tokenizer: some networks are loaded without, and then know no word.

    Raises:
        PyTritonValidationError: It has none.
    """
    if not any(each for name in TOKENIZERS for each in folder.glob(name)):
        raise PyTritonValidationError(f"{folder} has no tokenizer; save it there: tokenizer.save_pretrained(folder)")


def check_numbers(folder: Path) -> None:
    """Check that no settings of networks in a folder have numbers that would take all memory, or never end.

    Raises:
        PyTritonValidationError: Some have.
    """
    for path in sorted([*folder.rglob("config.json"), *folder.rglob("generation_config.json")]):
        for name, number in _numbers(json.loads(path.read_bytes())):
            most = next((most for ending, most in LARGEST.items() if re.search(f"({ending})$", name)), None)
            if most is not None and not number <= most:
                raise PyTritonValidationError(
                    f"{path} has {name} of {number!s:.20}, more than {most}; it is damaged, or not for this network"
                )


def _numbers(settings: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """Each number in settings, with its own name or that of the list that it is in."""
    if isinstance(settings, dict):
        yield from (found for key, value in settings.items() for found in _numbers(value, key))
    elif isinstance(settings, list):
        yield from (found for value in settings for found in _numbers(value, name))
    elif isinstance(settings, (int, float)):
        yield name, settings


def check_folder(folder: Path) -> None:
    """Check that a folder has weights in safetensors, and names no code but that of the libraries.

    Raises:
        PyTritonValidationError: It does not, so that it must be trusted.
    """
    if not any(folder.rglob(SAFE)):
        raise PyTritonValidationError(
            f"{folder} has no weights in safetensors, and pickled ones can run any code. If you know where they come "
            "from, allow that with trust=True (--trust); else have the model saved again by save_pretrained"
        )
    if found := next(_what_runs_code(folder), None):
        raise PyTritonValidationError(
            f"{folder} has {found}, which can run or fetch code. If you know where it comes from, allow that with "
            "trust=True (--trust)"
        )


def _what_runs_code(folder: Path) -> Iterator[str]:
    """What of a folder the libraries would load as code, or as a pickle, although they do not trust it."""
    links = (path for path in folder.rglob("*") if path.is_symlink() and path.is_dir())
    yield from (f"a symbolic link to a folder, {path.relative_to(folder)}" for path in links)
    for path in sorted(folder.rglob("*.json")):
        name = path.relative_to(folder)
        if path.name in ROUTERS or (path.name == MODULES and path.parent != folder):
            yield f"{name}, with modules within a module"
        elif path.name == MODULES:
            modules = json.loads(path.read_bytes())
            types, paths = ([str(each.get(key, "")) for each in modules] for key in ("type", "path"))
            yield from (f"the module {each} in {name}" for each in types if not MODULE.fullmatch(each))
            outside = (each for each in paths if not (folder / each).resolve().is_relative_to(folder.resolve()))
            yield from (f"the module in {each}, outside of it, in {name}" for each in outside)
        elif "config" in path.name and TRUSTING in json.dumps(json.loads(path.read_bytes())):
            yield f"{TRUSTING} in {name}"
        elif path.name.endswith(INDEX):
            files = json.loads(path.read_bytes()).get("weight_map", {}).values()
            yield from (f"weights in {each} in {name}" for each in files if not SHARD.fullmatch(str(each)))
    for path in sorted(folder.rglob(PICKLED)):
        if not any(path.parent.glob(f"*model{SAFE}")):
            yield f"pickled weights in {path.relative_to(folder)}"
