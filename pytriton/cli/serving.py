"""``pytriton serve``: what it was asked for, done in this process or in children of it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pytriton.cli.reload import Reloader, end_with_parent
from pytriton.cli.target import Target, TargetError
from pytriton.client.auth import TOKEN_VARIABLE
from pytriton.config import ENVIRONMENT_PREFIX, TritonConfig

__all__ = ["Order"]

LEVELS = ("debug", "info", "warning", "error")
FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@dataclass(frozen=True)
class Order:
    """What to serve. The server's options are in the environment, from where each ``Triton`` takes them.

    Args:
        target: The object.
        app_dir: Folder that its module is imported from.
        access_token: Of the server; None makes a random one.
        log_level: Of the module ``logging``.
    """

    target: Target
    app_dir: Path
    access_token: str | None
    log_level: str

    @classmethod
    def of(
        cls,
        target: str,
        app_dir: Path,
        options: Mapping[str, Any],
        texts: Iterable[str],
        access_token: str | None,
        log_level: str,
    ) -> Order:
        """From the command line; puts the server's options into the environment.

        Args:
            target: ``module:object``.
            app_dir: Folder that the module is imported from.
            options: Fields of TritonConfig; None is one that was not given.
            texts: More of them, ``field=value``.
            access_token: None if not given.
            log_level: Its name.

        Raises:
            TargetError: Something is not to be understood.
            PyTritonValidationError: An option has a wrong value.
        """
        if log_level.lower() not in LEVELS:
            raise TargetError(f"there is no log level {log_level!r}; choose one of {', '.join(LEVELS)}")
        if not app_dir.is_dir():
            raise TargetError(f"the folder {app_dir} does not exist; see --app-dir")
        given = {name: str(value) for name, value in options.items() if value is not None}
        for name, value in {**given, **dict(map(_field, texts))}.items():
            os.environ[ENVIRONMENT_PREFIX + name.upper()] = value
        TritonConfig.from_env()
        return cls(Target.parse(target), app_dir.resolve(), access_token, log_level.lower())

    def serve(self) -> None:
        """Serve in this process until a signal, or the end of the server.

        Raises:
            TargetError: There is nothing to serve under that name.
            ProgramError: The module, or binding its models, failed.
            Exception: What starting the server raises.
        """
        end_with_parent()
        sys.path.insert(0, str(self.app_dir))
        logging.basicConfig(level=self.log_level.upper(), format=FORMAT)
        triton = self.target.load(self.access_token)
        os.environ.pop(TOKEN_VARIABLE, None)  # no business of the server, nor of processes that callables start
        triton.serve()

    def serve_reloading(self, folders: Sequence[Path], say: Callable[[str], None]) -> None:
        """Serve in a child process, and in another one whenever the source has changed.

        Args:
            folders: More folders with source.
            say: Shows a message to the user.

        Raises:
            TargetError: There is no such module, or a folder is missing.
        """
        sys.path.insert(0, str(self.app_dir))
        for folder in folders:
            if not folder.is_dir():
                raise TargetError(f"the folder {folder} does not exist; see --reload-dir")
        watched = list(dict.fromkeys(folder.resolve() for folder in (self.target.folder(), *folders)))
        if self.access_token is not None:
            os.environ[TOKEN_VARIABLE] = self.access_token
        command = [sys.executable, "-m", "pytriton", "serve", str(self.target)]
        Reloader([*command, f"--app-dir={self.app_dir}", f"--log-level={self.log_level}"], watched, say).run()


def _field(text: str) -> tuple[str, str]:
    """The name and the value of ``field=value``.

    Raises:
        TargetError: It is something else, or TritonConfig has no such field.
    """
    name, separator, value = text.partition("=")
    name = name.strip().replace("-", "_").lower()
    if not separator or name not in {field.name for field in fields(TritonConfig)}:
        raise TargetError(
            f"option {text!r} is not FIELD=VALUE with a field of TritonConfig; docs/configuration.md lists them"
        )
    return name, value
