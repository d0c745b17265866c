"""Programs that call a host through clients: a process each, of the interpreter whose clients are to be measured."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from processes import end_with_parent
from systems import BenchError, Host, System

__all__ = ["run_client"]

_FOLDER = Path(__file__).parent


def run_client(
    host: Host, caller: System, script: str, protocol: str, model: str, timeout_s: float, **options: object
) -> dict[str, Any]:
    """What a program printed, which is one line of JSON.

    Args:
        host: Whose server it calls.
        caller: The system whose interpreter, and so whose package, it runs with.
        script: Its file, in this folder.
        protocol: ``http`` or ``grpc``.
        model: Which it calls.
        timeout_s: What it may take.
        options: The program's own.

    Raises:
        BenchError: It failed, or took longer.
    """
    where = [protocol, f"--port={host.target(protocol).port}", f"--model={model}"]
    how = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    what = f"{script} of {caller.name}, {protocol}"
    try:
        ran = subprocess.run(
            [caller.command[0], str(_FOLDER / script), *where, *how],
            env=caller.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            preexec_fn=end_with_parent,
        )
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{what}: it did not end in {timeout_s:.0f} s\n{error.stderr or ''}") from error
    if ran.returncode:
        raise BenchError(f"{what}: it failed:\n{ran.stderr}\nThe last lines of the host:\n{host.tail()}")
    printed: dict[str, Any] = json.loads(ran.stdout)
    return printed
