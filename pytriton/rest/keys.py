"""API keys with names: which models each may call, and how much in a minute.

Keys come from a file, or from the text of one, which is a list in JSON. It has no key, but the SHA-256 of each::

    [{"name": "search", "sha256": "9f86d0...", "models": ["embed-*"], "requests_per_minute": 600,
      "tokens_per_minute": 100000}]
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pytriton.exceptions import PyTritonBadParameterError
from pytriton.options import integer, with_none

__all__ = ["CELLS", "ApiKey", "memory_bytes", "read_keys"]

CELLS = 4  # of a key in a process: the minute, the requests and tokens in it, and the tokens that are reserved

SHA256 = re.compile(r"[0-9a-f]{64}")
LIMIT = with_none(integer())


@dataclass(frozen=True, kw_only=True)
class ApiKey:
    """A key.

    Attributes:
        name: For logs and errors.
        sha256: Of the key, in hexadecimal digits: ``printf %s "$KEY" | sha256sum``.
        models: Names of the models that it may call, with ``*`` and ``?`` as in a shell.
        requests_per_minute: None for no limit.
        tokens_per_minute: Of language and embedding models, on all routes. None for no limit.
    """

    name: str
    sha256: str
    models: Sequence[str] = ("*",)
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None

    def check(self) -> None:
        """Raise PyTritonBadParameterError if a value is wrong; the message names the key."""
        if not isinstance(self.name, str) or not self.name:
            raise PyTritonBadParameterError(f"an API key needs a name, got {self.name!r}")
        if not isinstance(self.sha256, str) or not SHA256.fullmatch(self.sha256):
            raise PyTritonBadParameterError(f"API key {self.name!r}: sha256 is not 64 hexadecimal digits in lower case")
        if isinstance(self.models, str) or not all(isinstance(each, str) for each in self.models):
            raise PyTritonBadParameterError(f"API key {self.name!r}: models is a list of names, got {self.models!r}")
        for name in ("requests_per_minute", "tokens_per_minute"):
            if not LIMIT.accepts(value := getattr(self, name)):
                raise PyTritonBadParameterError(f"API key {self.name!r}: {name} is a positive integer, got {value!r}")


def read_keys(source: str | Path | Sequence[ApiKey]) -> tuple[ApiKey, ...]:
    """The keys of a file, or of a text that begins with ``[``.

    Raises:
        PyTritonBadParameterError: The file cannot be read, or is no list of keys.
    """
    if isinstance(source, (str, Path)):
        keys = tuple(map(_key, _entries(source)))
    else:
        keys = tuple(source)
        if not all(isinstance(key, ApiKey) for key in keys):
            raise PyTritonBadParameterError(f"api_keys is a path, JSON or a list of ApiKey, got {source!r:.200}")
    for key in keys:
        key.check()
    for attribute in ("name", "sha256"):
        values = [getattr(key, attribute) for key in keys]
        if twice := [key.name for key in keys if values.count(getattr(key, attribute)) > 1]:
            raise PyTritonBadParameterError(f"API keys have the same {attribute}: {', '.join(map(repr, twice))}")
    return keys


def _entries(source: str | Path) -> list[Any]:
    text = str(source)
    try:
        if not text.lstrip().startswith("["):
            text = Path(source).read_text(encoding="utf-8")
        entries = json.loads(text)
    except (OSError, ValueError) as error:
        raise PyTritonBadParameterError(f"the API keys cannot be read: {error}") from error
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise PyTritonBadParameterError("the API keys are not a list of objects in JSON")
    return entries


def _key(entry: dict[str, Any]) -> ApiKey:
    names = [field.name for field in fields(ApiKey)]
    if unknown := sorted(entry.keys() - {*names}):
        raise PyTritonBadParameterError(f"an API key has {unknown[0]!r}; it can have {', '.join(names)}")
    if lacking := [name for name in ("name", "sha256") if name not in entry]:
        raise PyTritonBadParameterError(f"API key {entry.get('name')!r} lacks {lacking[0]!r}")
    return ApiKey(**entry)


def memory_bytes(keys: int, processes: int) -> int:
    """The size of the memory that the processes of an app share."""
    return max(keys * processes * CELLS * 8, 8)
