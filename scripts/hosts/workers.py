"""A hosting process for the benchmark's section ``workers``.

Usage: ``python workers.py <HTTP port> <gRPC port> <metrics port> double``; SIGTERM ends it. ``BENCH_WORKERS`` in the
environment is JSON: ``workers``, 0 for a thread; ``loops``, of Python for each request; ``busy``, whether this process
has a thread that never rests.
"""

import json
import logging
import os
import sys
import threading
from itertools import count

import numpy as np

from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig
from pytriton.workers import Processes

HOST = "127.0.0.1"
CHOSEN = json.loads(os.environ["BENCH_WORKERS"])


def make():
    loops = CHOSEN["loops"]

    @batch
    def double(INPUT):
        for _ in range(loops):
            pass
        return {"OUTPUT": 2 * INPUT}

    return double


def spin():
    for _ in count():
        pass


logging.basicConfig(level=logging.INFO)
if CHOSEN["busy"]:
    threading.Thread(target=spin, daemon=True).start()
http_port, grpc_port, metrics_port = map(int, sys.argv[1:4])
places = {"http_address": HOST, "grpc_address": HOST, "metrics_address": HOST}
ports = {"http_port": http_port, "grpc_port": grpc_port, "metrics_port": metrics_port}
with Triton(config=TritonConfig(**places, **ports)) as triton:
    triton.bind(
        sys.argv[4],
        Processes(make, count=CHOSEN["workers"]) if CHOSEN["workers"] else make(),
        inputs=[Tensor(name="INPUT", dtype=np.float32, shape=(-1,))],
        outputs=[Tensor(name="OUTPUT", dtype=np.float32, shape=(-1,))],
        config=ModelConfig(max_batch_size=1 if CHOSEN["loops"] else 128),
    )
    triton.serve()
