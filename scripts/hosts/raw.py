"""A hosting process for the benchmark: the server that pytriton launches, with models that do without pytriton.

Binary and command line are pytriton's. The environment is too, but for its settings of malloc, which a plain Triton
server does not have; ``BENCH_RAW_MALLOC=1`` gives it these as well, so that only the way to the function differs.

Usage: ``python raw.py [--copy=LIBRARY] <HTTP port> <gRPC port> <metrics port> <model>...``; SIGTERM ends it. The models
are those of ``model.py`` in Triton's Python backend, or the backend in the library, which copies inputs to outputs.
"""

import argparse
import os
import shutil
import signal
import sys
import threading
from functools import partial
from pathlib import Path
from uuid import uuid4

from models import MAX_BATCH_SIZE, TENSORS, kind
from served import config_of

from pytriton.model_config.dtypes import triton_name
from pytriton.server.installation import MALLOC_SETTINGS, find_installation, overlay, server_environment
from pytriton.server.launch import command_line
from pytriton.server.process import ServerProcess
from pytriton.utils.workspace import TEMPORARY_FOLDERS, Workspace

MAX_ROWS = 1000  # of a request to a saved model


def write_model(folder, name, library):
    """Write the model's configuration and its program."""
    model = kind(name)
    types = {suffix: triton_name(dtype).replace("BYTES", "STRING") for suffix, dtype in TENSORS[model].items()}
    tensors = {
        what: [f'name: "{what}{s}" data_type: TYPE_{t} dims: [-1]' for s, t in types.items()]
        for what in ("INPUT", "OUTPUT")
    }
    if model == "stream":
        tensors["INPUT"].append('name: "COUNT" data_type: TYPE_INT32 dims: [1]')
    lines = [f'backend: "{"copy" if library else "python"}"', f"max_batch_size: {MAX_BATCH_SIZE}"]
    lines += [f"{what.lower()} [{{ {' }, { '.join(each)} }}]" for what, each in tensors.items()]
    lines += ["dynamic_batching {}", "instance_group [{ kind: KIND_CPU count: 1 }]"]
    lines += ["model_transaction_policy { decoupled: true }"] if model == "stream" else []
    (folder / name / "1").mkdir(parents=True)
    (folder / name / "config.pbtxt").write_text("\n".join(lines))
    program = library or Path(__file__).with_name("model.py")
    shutil.copy(program, folder / name / "1" / program.name)


def write_onnx(folder, name, file):
    """Write a model that calls onnxruntime with a file."""
    (folder / name / "1").mkdir(parents=True)
    tensors = 'input [{ name: "features" data_type: TYPE_FP32 dims: [4] }] '
    tensors += 'output [{ name: "label" data_type: TYPE_INT64 dims: [1] reshape: { shape: [] } }]'
    lines = ['backend: "python"', f"max_batch_size: {MAX_ROWS}", tensors, "dynamic_batching {}"]
    lines += ["instance_group [{ kind: KIND_CPU count: 1 }]"]
    (folder / name / "config.pbtxt").write_text("\n".join(lines))
    shutil.copy(Path(__file__).with_name("onnx_model.py"), folder / name / "1" / "model.py")
    shutil.copy(file, folder / name / "1" / "model.onnx")


def serve(ports, models, write):
    """Serve models until SIGTERM; returns the server's exit status.

    Args:
        ports: Of HTTP, gRPC and metrics.
        models: Their names.
        write: Writes the folder of a model; gets the folder of all, and the name.
    """
    installation = find_installation()
    workspace = Workspace()
    store, overlaid = workspace.model_store_path, workspace.path / "server"
    for model in models:
        write(store, model)
    python = overlay(installation, overlaid)
    prefix = f"bench-{uuid4().hex[:12]}-"
    environment = server_environment(installation, overlaid, python)
    if not os.environ.get("BENCH_RAW_MALLOC"):
        for name in MALLOC_SETTINGS.keys() - os.environ.keys():
            del environment[name]
    ended, statuses = threading.Event(), []
    server = ServerProcess(
        [
            *command_line(installation, config_of(*ports), store, overlaid, prefix),
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


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--copy", type=Path)
    parser.add_argument("ports", type=int, nargs=3)
    parser.add_argument("models", nargs="+")
    chosen = parser.parse_args()
    return serve(chosen.ports, chosen.models, partial(write_model, library=chosen.copy))


if __name__ == "__main__":
    sys.exit(main())
