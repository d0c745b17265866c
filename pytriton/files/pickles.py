"""Files that are pickles, which may run any code when they are loaded, and those that other libraries read as such."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["OF_TORCH", "is_pickle"]

OF_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # how torch.save began before PyTorch 1.6
COMPRESSED = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda", b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x5d\x00\x00")
SUFFIXES = (".joblib", ".pickle", ".pkl", ".sav", ".gz", ".z", ".bz2", ".xz", ".lzma")


def is_pickle(path: Path, head: bytes) -> bool:
    """Whether a file is a pickle of protocol 2 to 5, or one that joblib has compressed, and none of ``torch.save``.

    Args:
        head: Its first bytes.
    """
    if re.match(rb"\x80[\x02-\x05]", head) and not head.startswith(OF_TORCH):
        return True
    return path.suffix.lower() in SUFFIXES and head.startswith(COMPRESSED)
