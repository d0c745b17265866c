"""A hosting process for the benchmark: the server that pytriton launches, with plain models of ``repository/``.

Binary and command line are pytriton's. The environment is too, but for its settings of malloc, which a plain Triton
server does not have; ``BENCH_RAW_MALLOC=1`` gives it these as well, so that only the way to the function differs.

Usage: ``python raw.py <HTTP port> <gRPC port> <metrics port> <model>...``; SIGTERM ends it.
"""

import os
import shutil
import signal
import sys
import threading
from pathlib import Path
from uuid import uuid4

from pytriton.config import TritonConfig
from pytriton.server.installation import MALLOC_SETTINGS, find_installation, overlay, server_environment
from pytriton.server.launch import command_line
from pytriton.server.process import ServerProcess
from pytriton.utils.workspace import TEMPORARY_FOLDERS, Workspace

HOST = "127.0.0.1"


def main() -> int:
    http_port, grpc_port, metrics_port = map(int, sys.argv[1:4])
    models = sys.argv[4:]
    config = TritonConfig(
        http_address=HOST,
        http_port=http_port,
        grpc_address=HOST,
        grpc_port=grpc_port,
        metrics_address=HOST,
        metrics_port=metrics_port,
    )
    installation = find_installation()
    workspace = Workspace()
    store, overlaid = workspace.model_store_path, workspace.path / "server"
    for model in models:
        shutil.copytree(Path(__file__).with_name("repository") / model, store / model)
    python = overlay(installation, overlaid)
    prefix = f"bench-{uuid4().hex[:12]}-"
    environment = server_environment(installation, overlaid, python)
    if not os.environ.get("BENCH_RAW_MALLOC"):
        for name in MALLOC_SETTINGS.keys() - os.environ.keys():
            del environment[name]
    ended, statuses = threading.Event(), []
    server = ServerProcess(
        [
            *command_line(installation, config, store, overlaid, prefix),
            *(f"--load-model={model}" for model in models),
        ],
        environment,
        f"/dev/shm/{prefix}*",
        overlaid / TEMPORARY_FOLDERS,
        workspace.path,
        lambda status: (statuses.append(status), ended.set()),
    )
    signal.signal(signal.SIGTERM, lambda *_: server.interrupt())
    ended.wait()
    workspace.clean()
    return statuses[0]


if __name__ == "__main__":
    sys.exit(main())
