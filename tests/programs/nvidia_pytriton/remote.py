"""A server in one process, models from another."""
import argparse
import multiprocessing
import sys
import time
import numpy as np
from pytriton.client import ModelClient
from pytriton.decorators import batch
from pytriton.model_config import Tensor
from pytriton.triton import RemoteTriton, Triton, TritonConfig, TritonSecurityConfig

parser = argparse.ArgumentParser()
parser.add_argument("--http-port", type=int); parser.add_argument("--grpc-port", type=int); parser.add_argument("--metrics-port", type=int)


def server(args, ready, done):
    config = TritonConfig(http_port=args.http_port, grpc_port=args.grpc_port, metrics_port=args.metrics_port)
    with Triton(config=config, security_config=TritonSecurityConfig(access_token="secret")) as triton:
        triton.run()
        ready.set()
        done.wait(100)


@batch
def twice(x):
    return [x * 2]


def main():
    args = parser.parse_args()
    ctx = multiprocessing.get_context("spawn")
    ready, done = ctx.Event(), ctx.Event()
    process = ctx.Process(target=server, args=(args, ready, done))
    process.start()
    assert ready.wait(100)
    url = "http://localhost:%d" % args.http_port
    tensors = [Tensor(name="x", dtype=np.float32, shape=(1,))], [Tensor(name="y", dtype=np.float32, shape=(1,))]
    try:
        with RemoteTriton(url, access_token="secret") as triton:
            print("alive", triton.is_alive(), triton.is_connected())
            triton.bind("twice", twice, *tensors)
            with ModelClient(url, "twice") as client:
                print(client.infer_sample(np.array([21], "float32"))["y"].tolist())
            print("alive", triton.is_alive(), triton.is_connected())
        triton = RemoteTriton(url, None, "secret")
        triton.bind("twice", twice, *tensors)
        triton.connect()
        with ModelClient("grpc://localhost:%d" % args.grpc_port, "twice") as client:
            print(client.infer_sample(np.array([4], "float32"))["y"].tolist())
        triton.stop()
        triton.__exit__()
    finally:
        done.set()
        process.join()
    print("exit code", process.exitcode)


if __name__ == "__main__":
    main()
