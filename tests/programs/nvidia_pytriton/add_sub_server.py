"""A server that serves until somebody presses Ctrl+C."""
import logging
import sys

import numpy as np
from pytriton.model_config import *
from pytriton.triton import *

logger = logging.getLogger("add_sub")


def _add_sub(requests):
    responses = []
    for req in requests:
        a_batch, b_batch = req.values()
        responses.append({"add": a_batch + b_batch, "sub": a_batch - b_batch})
    return responses


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stdout)
    http, grpc, metrics = map(int, sys.argv[1:4])
    triton = Triton(config=TritonConfig(http_port=http, grpc_port=grpc, metrics_port=metrics))
    with triton:
        logger.info("Loading model")
        triton.bind(
            model_name="AddSub",
            infer_func=_add_sub,
            inputs=[Tensor(dtype=np.float32, shape=(-1,)), Tensor(dtype=np.float32, shape=(-1,))],
            outputs=[Tensor(name="add", dtype=np.float32, shape=(-1,)), Tensor(name="sub", dtype=np.float32, shape=(-1,))],
            config=ModelConfig(max_batch_size=16),
        )
        logger.info("Serving model")
        triton.serve(monitoring_period_s=1)
    print("bye, alive:", triton.is_alive(), flush=True)
