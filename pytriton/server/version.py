"""Which version a server is, said by itself."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from subprocess import PIPE, STDOUT
from threading import Timer

from pytriton.exceptions import PyTritonServerError
from pytriton.server.installation import Installation

__all__ = ["server_version"]

TIMEOUT_S = 60.0
VERSION = re.compile(r"\| server_version +\| (\S+)")


def server_version(installation: Installation) -> str:
    """Start the server without models and endpoints, and read its version from its log.

    Raises:
        PyTritonServerError: It did not start; the message has its last lines.
    """
    with tempfile.TemporaryDirectory(prefix="pytriton-") as empty:
        command = [
            str(installation.executable),
            f"--model-repository={empty}",
            "--model-control-mode=explicit",
            *(f"--allow-{endpoint}=false" for endpoint in ("http", "grpc", "metrics")),
        ]
        libraries = os.pathsep.join(filter(None, [str(installation.home / "lib"), os.environ.get("LD_LIBRARY_PATH")]))
        environment = {**os.environ, "LD_LIBRARY_PATH": libraries}
        process = subprocess.Popen(command, stdout=PIPE, stderr=STDOUT, text=True, errors="replace", env=environment)
        timer = Timer(TIMEOUT_S, process.kill)
        timer.start()
        lines = []
        with process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    lines.append(line)
                    if match := VERSION.match(line):
                        return match[1]
            finally:
                timer.cancel()
                process.kill()
    raise PyTritonServerError(f"{installation.executable} did not start; its last lines:\n{''.join(lines[-10:])}")
