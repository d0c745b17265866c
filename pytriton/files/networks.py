"""Folders of Hugging Face: whether they have a network that is theirs, and weights that run no code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from pytriton.exceptions import PyTritonValidationError

__all__ = ["ADAPTER", "check_folder", "check_tokenizer", "has_network"]

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


def has_network(folder: Path) -> bool:
    """Whether a folder, or one in it, has weights that are not those of an adapter of another network."""
    return not (folder / ADAPTER).exists() and any(each for name in (SAFE, PICKLED) for each in folder.rglob(name))


def check_tokenizer(folder: Path) -> None:
    """Check that a folder has a file of a tokenizer: some networks are loaded without, and then know no word.

    Raises:
        PyTritonValidationError: It has none.
    """
    if not any(each for name in TOKENIZERS for each in folder.glob(name)):
        raise PyTritonValidationError(f"{folder} has no tokenizer; save it there: tokenizer.save_pretrained(folder)")


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
            types = [str(each.get("type")) for each in json.loads(path.read_bytes())]
            yield from (f"the module {each} in {name}" for each in types if not MODULE.fullmatch(each))
        elif "config" in path.name and TRUSTING in json.dumps(json.loads(path.read_bytes())):
            yield f"{TRUSTING} in {name}"
        elif path.name.endswith(INDEX):
            files = json.loads(path.read_bytes()).get("weight_map", {}).values()
            yield from (f"weights in {each} in {name}" for each in files if not SHARD.fullmatch(str(each)))
    for path in sorted(folder.rglob(PICKLED)):
        if not any(path.parent.glob(SAFE)):
            yield f"pickled weights in {path.relative_to(folder)}"
