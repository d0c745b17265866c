"""Which requests of a model are recorded, what of them, and where: :class:`Recording`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from pytriton.exceptions import PyTritonBadParameterError

__all__ = ["Recording"]

_LEAST = {"file_bytes": 2**16, "files": 1, "record_bytes": 2**10}


@dataclass
class Recording:
    """Keeps requests to a model, with their answers, in files, for ``pytriton replay``.

    Args:
        path: Of the newest file; older ones are called ``PATH.1``, ``PATH.2`` and so on. A file that is there already
            becomes ``PATH.1``; none of them may be a folder.
        share: Share of the requests that are recorded, above 0 and up to 1; which ones is random. Of a
            sequence, all requests are recorded or none.
        without: Names of inputs, outputs and parameters that are left out; ``"id"`` leaves the request's id out. Names
            of parameters, such as headers that the server forwards, are found in any letter case, others in their own.
        file_bytes: Bytes of a file, after which the next one is begun; at least 64 KiB.
        files: Number of files; the oldest is deleted, and so are, when the recording begins, older ones that an earlier
            recording has left with higher numbers.
        record_bytes: Most bytes of one request with its answer; larger ones are counted, and not recorded.

    Raises:
        PyTritonBadParameterError: A value is out of range or of another type.
    """

    path: str | Path
    share: float = 1.0
    without: Sequence[str] = ()
    file_bytes: int = 64 * 2**20
    files: int = 8
    record_bytes: int = 2**20

    def __post_init__(self) -> None:
        if not isinstance(self.path, (str, os.PathLike)) or not Path(self.path).name or "\0" in str(self.path):
            raise PyTritonBadParameterError(f"path of a Recording must be that of a file, got {self.path!r}")
        self.path = Path(self.path)
        if isinstance(self.share, bool) or not isinstance(self.share, (int, float)) or not 0 < self.share <= 1:
            raise PyTritonBadParameterError(f"share must be a number above 0 and up to 1, got {self.share!r}")
        names = self.without
        if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
            raise PyTritonBadParameterError(f"without must be a list of names, got {names!r}")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise PyTritonBadParameterError(f"{name} must be an integer of at least {least}, got {value!r}")

    @classmethod
    def options(cls) -> list[str]:
        """The names of the arguments but the path."""
        return [field.name for field in fields(cls) if field.name != "path"]
