#!/usr/bin/env python3
"""Linear layer with random weights. Server and client in one script."""
import argparse
import logging

import numpy as np

from pytriton.decorators import batch
from pytriton.client import ModelClient
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

logger = logging.getLogger("examples.linear_random.server")
logging.basicConfig(level=logging.INFO, format="%(asctime)s - %(levelname)s - %(name)s: %(message)s")

IN, OUT = 20, 30
rng = np.random.RandomState(0)
W = rng.randn(IN, OUT).astype("float32")
B = rng.randn(OUT).astype("float32")
MODEL = None


class Linear:
    def __init__(self, w, b):
        self.w = w
        self.b = b
        self.calls = 0

    @batch
    def infer_func(self, **inputs: np.ndarray):
        (x,) = inputs.values()
        self.calls += 1
        result = np.matmul(x, self.w) + self.b
        return [result]


def main():
    global MODEL
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http-port", type=int, default=8000)
    parser.add_argument("--grpc-port", type=int, default=8001)
    parser.add_argument("--metrics-port", type=int, default=8002)
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--verbose", "-v", action="store_true")
    args = parser.parse_args()
    log_level = logging.DEBUG if args.verbose else logging.INFO
    logger.setLevel(log_level)

    MODEL = Linear(W, B)
    config = TritonConfig(http_port=args.http_port, grpc_port=args.grpc_port, metrics_port=args.metrics_port,
                          log_verbose=0, exit_on_error=True)
    batcher = DynamicBatcher(max_queue_delay_microseconds=100, preferred_batch_size=[2, 4])
    with Triton(config=config) as triton:
        logger.info("Loading Linear model.")
        triton.bind(
            "Linear",
            MODEL.infer_func,
            [Tensor(name="data", dtype=W.dtype.type, shape=(-1,)),],
            [Tensor(name="result", dtype=np.float32, shape=(-1,)),],
            config=ModelConfig(max_batch_size=128, batcher=batcher),
        )
        triton.run()
        with ModelClient("localhost:%d" % args.http_port, "Linear", init_timeout_s=60) as client:
            for i in range(args.iterations):
                data = rng.randn(4, IN).astype(np.float32)
                result_dict = client.infer_batch(data)
                if not np.allclose(result_dict["result"], data @ W + B, atol=1e-4):
                    logger.error("wrong result")
                    exit(1)
            one = client.infer_sample(data=np.ones(IN, np.float32))
            assert one["result"].shape == (OUT,)
            cfg = client.model_config
            print("model", cfg.model_name, cfg.max_batch_size, [t.name for t in cfg.inputs])
    print("PASS: %d calls" % MODEL.calls)


if __name__ == "__main__":
    main()
