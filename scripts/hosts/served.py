"""A hosting process for the benchmark: without options only pytriton's public API, so that nvidia-pytriton runs it.

Usage: ``python served.py <HTTP port> <gRPC port> <metrics port> <model>...``; SIGTERM ends it. The models are those of
``models.py``, which are loaded in the order given.
"""

import argparse
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from itertools import count

import numpy as np
from models import MAX_BATCH_SIZE, TENSORS, WIDTH, compute, kind
from numpy.typing import NDArray

from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

HOST = "127.0.0.1"
MAX_REQUESTS = 20_000  # of a worker, with --restart
LOOPS_VARIABLE = "BENCH_LOOPS"  # of a remote worker


def make(model, loops=0):
    """The callable of a model, which first counts to ``loops``."""

    @batch
    def double(INPUT):
        for _ in range(loops):
            pass
        return {"OUTPUT": 2 * INPUT}

    @batch
    def pair(INPUT, INPUT_2):
        return {"OUTPUT": 2 * INPUT, "OUTPUT_2": 2 * INPUT_2}

    @batch
    def stream(INPUT, COUNT):
        for _ in range(COUNT[0, 0]):
            yield {"OUTPUT": 2 * INPUT}

    @batch
    def echo(INPUT):
        return {"OUTPUT": INPUT}

    @batch
    def errant(INPUT):
        if INPUT.min() < 0:
            raise ValueError("it was asked to fail")
        time.sleep(float(INPUT.max()))
        return {"OUTPUT": 2 * INPUT}

    @batch
    def busy(INPUT):
        compute()
        return {"OUTPUT": 2 * INPUT}

    @batch
    def encoder(INPUT):
        return {"result": vectors([text.decode() for text in INPUT[:, 0]])}

    if model == "nested":
        return nesting()
    functions = double, pair, stream, echo, errant, busy, encoder
    return next(each for each in functions if each.__name__ == model)


def nesting():
    """What calls the model "double"."""
    from pytriton import ModelHandle

    @batch
    def nested(INPUT, double: ModelHandle):
        return double(INPUT)

    return nested


@batch
def encoder_of_values(INPUT: list[str]) -> NDArray[np.float32]:
    """The model "encoder" as a typed function."""
    return vectors(INPUT)


def vectors(texts):
    """A row with the length of each text, after a while."""
    compute()
    return np.repeat(np.array([len(text) for text in texts], np.float32)[:, np.newaxis], WIDTH, axis=1)


def __getattr__(name):
    """``make_NAME`` is the factory of a model for ``pytriton worker``."""
    if not name.startswith("make_"):
        raise AttributeError(name)
    return partial(make, name.removeprefix("make_"), int(os.environ[LOOPS_VARIABLE]))


def bind(triton, name, infer_func, max_batch_size=MAX_BATCH_SIZE):
    """Bind a model of this name."""
    model, inputs, outputs = kind(name), [], []
    for suffix, dtype in TENSORS[model].items():
        inputs.append(Tensor(name=f"INPUT{suffix}", dtype=dtype, shape=(-1,)))
        outputs.append(Tensor(name=f"OUTPUT{suffix}", dtype=dtype, shape=(-1,)))
    if model == "encoder":
        inputs = [Tensor(name="INPUT", dtype=bytes, shape=(1,))]
        outputs = [Tensor(name="result", dtype=np.float32, shape=(WIDTH,))]
    if model == "stream":
        inputs.append(Tensor(name="COUNT", dtype=np.int32, shape=(1,)))
    batcher = DynamicBatcher(
        preserve_ordering=os.environ.get("BENCH_BATCHER") == "server"
    )  # else the proxy makes batches
    config = ModelConfig(max_batch_size=max_batch_size, batcher=batcher, decoupled=model == "stream")
    triton.bind(model_name=name, infer_func=infer_func, inputs=inputs, outputs=outputs, config=config)


def config_of(http_port, grpc_port, metrics_port):
    """The server on these ports of this machine alone."""
    places = {"http_address": HOST, "grpc_address": HOST, "metrics_address": HOST}
    return TritonConfig(http_port=http_port, grpc_port=grpc_port, metrics_port=metrics_port, **places)


def serve_model(triton, name, chosen):
    """Bind a model as the command line has it."""
    if name == "steps":
        from pytriton import Pipeline

        triton.bind(name, Pipeline("double", "nested"))
        return
    if chosen.values and kind(name) == "encoder":
        config = ModelConfig(max_batch_size=MAX_BATCH_SIZE, batcher=DynamicBatcher())
        triton.bind(name, encoder_of_values, config=config, example={"INPUT": "a"})
        return
    infer_func = partial(make, kind(name), chosen.loops)
    if chosen.workers:
        from pytriton.workers import Processes

        endless = {"max_requests": MAX_REQUESTS} if chosen.restart else {}
        sharing = {"share": True} if chosen.share else {}
        infer_func = Processes(infer_func, count=chosen.workers, **endless, **sharing)
    elif chosen.remote:
        from pytriton.workers import RemoteWorkers

        infer_func = RemoteWorkers(remote_address(chosen), min_workers=chosen.remote)
    else:
        infer_func = infer_func()
    bind(triton, name, infer_func, 1 if chosen.loops else MAX_BATCH_SIZE)


def remote_address(chosen):
    """Where remote workers connect: the port after those of the server."""
    return f"tcp://{HOST}:{max(chosen.ports) + 1}"


class RemoteWorker(threading.Thread):
    """The program of a remote worker, which ends with this process and, with --restart, is started again before."""

    def __init__(self, chosen):
        super().__init__(daemon=True)
        factories = [f"{name}=served:make_{kind(name)}" for name in chosen.models]
        folder = os.path.dirname(os.path.abspath(__file__))
        self._command = ["setpriv", "--pdeathsig=TERM", sys.executable, "-m", "pytriton", "worker", *factories]
        self._command += [f"--connect={remote_address(chosen)}", f"--app-dir={folder}"]
        self._environment = {**os.environ, LOOPS_VARIABLE: str(chosen.loops)}
        self._restart, self._lock = chosen.restart, threading.Lock()
        self._process = None
        self.start()

    def run(self):
        """Start the program, and wait for its end."""
        while self._start():
            self._process.wait()

    def _start(self):
        with self._lock:
            if self._process is not None and not self._restart:
                return False
            self._process = subprocess.Popen(self._command, env=self._environment)
            return True

    def end(self):
        """End the program."""
        with self._lock:
            self._restart = False
            if self._process is not None:
                self._process.terminate()
        self.join()


def rebind(triton, chosen):
    """Unbind each model, and bind it again."""
    for name in sorted(chosen.models, key="steps".__eq__):  # which needs the others
        triton.unbind(name)
        serve_model(triton, name, chosen)
    print("bound again", flush=True)


def main():
    """Serve until a signal."""
    parser = argparse.ArgumentParser()
    parser.add_argument("ports", type=int, nargs=3)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--restart", action="store_true", help="a server that died; SIGUSR1 rebinds the models")
    parser.add_argument("--workers", type=int, default=0, help="processes for each model; 0 is a thread")
    parser.add_argument("--share", action="store_true", help="memory of worker processes, by a template of each model")
    parser.add_argument("--remote", type=int, default=0, help="remote workers on this machine, over TCP")
    parser.add_argument("--loops", type=int, default=0, help="of Python for each request, which is not batched then")
    parser.add_argument("--values", action="store_true", help="the encoder gets lists of values, and no arrays")
    parser.add_argument("--busy", action="store_true", help="a thread beside the server that computes without end")
    chosen = parser.parse_args()
    options = {}
    if chosen.restart:
        from pytriton.triton import TritonLifecyclePolicy

        logging.basicConfig(level=logging.INFO)
        options["triton_lifecycle_policy"] = TritonLifecyclePolicy(restart_server=True)
    if chosen.busy:
        threading.Thread(target=lambda: [None for _ in count()], daemon=True).start()
    remote = [RemoteWorker(chosen) for _ in range(chosen.remote)]
    with Triton(config=config_of(*chosen.ports), **options) as triton:
        for name in chosen.models:
            serve_model(triton, name, chosen)
        if chosen.restart:
            signal.signal(signal.SIGUSR1, lambda *_: threading.Thread(target=rebind, args=(triton, chosen)).start())
        triton.serve()
    for worker in remote:
        worker.end()


if __name__ == "__main__":
    sys.exit(main())
