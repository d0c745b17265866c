"""A hosting process for the benchmark: pytriton's public API alone, so that nvidia-pytriton runs it too.

Usage: ``python served.py <HTTP port> <gRPC port> <metrics port>``; SIGTERM ends it.
"""

import sys

import numpy as np

from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

HOST = "127.0.0.1"


@batch
def double(INPUT):
    return {"OUTPUT": 2 * INPUT}


def main() -> None:
    http_port, grpc_port, metrics_port = map(int, sys.argv[1:])
    config = TritonConfig(
        http_address=HOST,
        http_port=http_port,
        grpc_address=HOST,
        grpc_port=grpc_port,
        metrics_address=HOST,
        metrics_port=metrics_port,
    )
    with Triton(config=config) as triton:
        triton.bind(
            model_name="double",
            infer_func=double,
            inputs=[Tensor(name="INPUT", dtype=np.float32, shape=(-1,))],
            outputs=[Tensor(name="OUTPUT", dtype=np.float32, shape=(-1,))],
            config=ModelConfig(max_batch_size=128, batcher=DynamicBatcher()),
        )
        triton.serve()


if __name__ == "__main__":
    main()
