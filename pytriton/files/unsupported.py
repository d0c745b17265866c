"""Files and folders of models that cannot be served as they are, and what to do with them."""

from __future__ import annotations

from pathlib import Path

from pytriton.files.networks import ADAPTER
from pytriton.files.pickles import OF_TORCH
from pytriton.files.zips import ZIP, has_file

__all__ = ["advice_for"]

CHECKPOINT = (
    "a checkpoint of torch.save, which has no program, and whose pickle may run any code; load it in a program of "
    "yours, and save the network there: torch.export.save(torch.export.export(network, inputs), 'model.pt2')"
)
FOLDERS = {
    "config.pbtxt": "a model of Triton's repository; pass the folder above it as model_repository to Triton()",
    ADAPTER: "an adapter of PEFT, whose network is elsewhere; save the network with it: merge_and_unload()",
    "config.json": "a folder of Hugging Face without weights, *.safetensors or pytorch_model.bin; fetch them, too",
    "saved_model.pb": "a SavedModel of TensorFlow; convert it to ONNX with tf2onnx",
}
HEADS = {
    OF_TORCH: CHECKPOINT,
    b"binf": "XGBoost's old binary format; load it with XGBoost and save it as .ubj",
    b"\x89HDF": "HDF5; if it is a model of Keras, export it with model.export(..., format='onnx')",
    b"version https://git-lfs": "a pointer of Git LFS, not the file itself; run git lfs pull",
}


def advice_for(path: Path, head: bytes) -> str | None:
    """What a file or folder is, and what to do with it, if that is known.

    Args:
        head: The first bytes of a file.
    """
    if path.is_dir():
        found = next((what for name, what in FOLDERS.items() if (path / name).is_file()), None)
        return found or "a folder without a file MLmodel or config.json; name the model file"
    if head.startswith(ZIP) and has_file(path, r"[^/]+/data\.pkl"):
        return CHECKPOINT
    if head[5:10] == b'\0\0\0{"':
        return FOLDERS[ADAPTER]
    return next((what for start, what in HEADS.items() if head.startswith(start)), None)
