"""A hosting process for the benchmark's section ``workers``.

Usage: ``python workers.py <HTTP port> <gRPC port> <metrics port> double``; SIGTERM ends it. ``BENCH_WORKERS`` in the
environment is JSON, a Form of worker_hosts.py.
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
from pytriton.triton import Triton, TritonConfig, TritonSecurityConfig
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


def callable_or_workers():
    if not CHOSEN["workers"]:
        return make()
    return Processes(make, count=CHOSEN["workers"])


def spin():
    for _ in count():
        pass


logging.basicConfig(level=logging.INFO)
if CHOSEN["busy"]:
    threading.Thread(target=spin, daemon=True).start()
http_port, grpc_port, metrics_port = map(int, sys.argv[1:4])
places = {"http_address": HOST, "grpc_address": HOST, "metrics_address": HOST}
ports = {"http_port": http_port, "grpc_port": grpc_port, "metrics_port": metrics_port}
security = TritonSecurityConfig(restricted_endpoints=[])  # the benchmark asks for statistics
with Triton(config=TritonConfig(**places, **ports), security_config=security) as triton:
    triton.bind(
        sys.argv[4],
        callable_or_workers(),
        inputs=[Tensor(name="INPUT", dtype=np.float32, shape=(-1,))],
        outputs=[Tensor(name="OUTPUT", dtype=np.float32, shape=(-1,))],
        config=ModelConfig(max_batch_size=1 if CHOSEN["loops"] else 128),
    )
    triton.serve()
