"""Folders of backends and caches for a server in this process."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pytriton.exceptions import PyTritonServerError
from pytriton.inprocess.exceptions import UnavailableError
from pytriton.inprocess.options import Options
from pytriton.server.installation import Installation, overlay, server_environment
from pytriton.server.launch import has_gpu_driver
from pytriton.server.python_backend import STUB
from pytriton.utils.workspace import Workspace

__all__ = ["arrange"]

DEFAULTS = Options()


def arrange(
    options: Options, installation: Installation, workspace: Workspace, environment: Mapping[str, str] = os.environ
) -> Options:
    """Fill in what depends on this machine: defaults that it does not have, and GPUs.

    Args:
        options: What the user says.
        installation: The server's files.
        workspace: Gets backends for this interpreter, if the default folder does not exist.
        environment: Of this process.

    Raises:
        UnavailableError: There are no backends that run here.
    """
    directory = options.backend_directory
    folder = workspace.path / "server"
    if directory == DEFAULTS.backend_directory and not Path(directory).is_dir():
        try:
            _make_backends(installation, folder, environment)
        except PyTritonServerError as error:
            raise UnavailableError(str(error)) from error
        options = replace(options, backend_directory=str(folder / "backends"))
    if options.cache_directory == DEFAULTS.cache_directory and not Path(options.cache_directory).is_dir():
        options = replace(options, cache_directory=str(installation.caches))
    python = {
        "shm-region-prefix-name": workspace.shared_memory_prefix,
        **options.backend_configuration.get("python", {}),
    }
    options = replace(options, backend_configuration={**options.backend_configuration, "python": python})
    if not has_gpu_driver():
        # Only alarming log lines come of looking for GPUs where there are none.
        options = replace(options, gpu_metrics=False, pinned_memory_pool_size=0)
    return options


def _make_backends(installation: Installation, folder: Path, environment: Mapping[str, str]) -> None:
    python = overlay(installation, folder)
    if python is None:
        return
    # A stub needs an environment that the server would have to have: here it is not the server's, but the user's. The
    # stub in this folder is a script, which sets the environment and becomes the stub.
    needed = server_environment(installation, folder, python, environment)
    lines = [f"export {name}={shlex.quote(value)}" for name, value in needed.items() if environment.get(name) != value]
    lines += [f"unset {name}" for name in environment.keys() - needed.keys() if name.isidentifier()]
    stub = folder / "backends" / "python" / STUB
    stub.unlink()
    stub.write_text("\n".join(["#!/bin/sh", *lines, f'exec {shlex.quote(str(python.stub))} "$@"', ""]))
    stub.chmod(0o755)
