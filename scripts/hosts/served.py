"""A hosting process for the benchmark: pytriton's public API alone, so that nvidia-pytriton runs it too.

Usage: ``python served.py <HTTP port> <gRPC port> <metrics port> <model>...``, where the models are ``double``,
``echo``, ``stream`` and ``errant``, which are loaded in the order given; SIGTERM ends it.
"""

import sys
import time

import numpy as np

from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

HOST = "127.0.0.1"


@batch
def double(INPUT):
    return {"OUTPUT": 2 * INPUT}


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


FUNCTIONS = {"double": double, "stream": stream, "echo": echo, "errant": errant}
DTYPES = {"double": np.float32, "stream": np.float32, "echo": bytes, "errant": np.float32}
COUNTS = {"stream": [Tensor(name="COUNT", dtype=np.int32, shape=(1,))]}


def main(**options) -> None:
    """Serve until a signal; options are those of Triton."""
    http_port, grpc_port, metrics_port = map(int, sys.argv[1:4])
    config = TritonConfig(
        http_address=HOST,
        http_port=http_port,
        grpc_address=HOST,
        grpc_port=grpc_port,
        metrics_address=HOST,
        metrics_port=metrics_port,
    )
    with Triton(config=config, **options) as triton:
        for name in sys.argv[4:]:
            triton.bind(
                model_name=name,
                infer_func=FUNCTIONS[name],
                inputs=[Tensor(name="INPUT", dtype=DTYPES[name], shape=(-1,)), *COUNTS.get(name, [])],
                outputs=[Tensor(name="OUTPUT", dtype=DTYPES[name], shape=(-1,))],
                config=ModelConfig(max_batch_size=128, batcher=DynamicBatcher(), decoupled=name == "stream"),
            )
        triton.serve()


if __name__ == "__main__":
    main()
