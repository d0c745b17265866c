"""serve() in the main thread; a client in a thread, which sends the signal that ends it."""
import logging
import os
import signal
import sys
import threading
import numpy as np
from pytriton.client import ModelClient
from pytriton.triton import Triton, TritonConfig
from pytriton.model_config import ModelConfig, Tensor

logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(name)s %(levelname)s %(message)s")
port, grpc, metrics, which = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
result = None


def client():
    global result
    try:
        with ModelClient(f"localhost:{port}", "m", init_timeout_s=60) as c:
            result = c.infer_sample(np.array([1, 2, 3], np.int32))["OUTPUT_1"].tolist()
    finally:
        os.kill(os.getpid(), getattr(signal, which))


triton = Triton(config=TritonConfig(http_port=port, grpc_port=grpc, metrics_port=metrics))
triton.bind("m", lambda requests: [{"OUTPUT_1": r["INPUT_1"][::-1] if False else r["INPUT_1"] + 1} for r in requests],
            [Tensor(shape=(-1,), dtype=np.int32)], [Tensor(shape=(-1,), dtype=np.int32)])
threading.Thread(target=client).start()
triton.serve(monitoring_period_sec=0.5)
print("served", result, triton.stop())
