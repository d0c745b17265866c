"""Several instances of one model, and a pool of threads with a client for each."""
import argparse
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from pytriton.client import ModelClient
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

DEVICES = ["cuda:0", "cuda:1", "cuda:2"]
used = set()
lock = threading.Lock()


def infer_fn_factory(device):
    @batch
    def infer_fn(image):
        with lock:
            used.add(device)
        time.sleep(0.05)
        return {"out": image * 2}

    return infer_fn


class _Other(object):
    def __init__(self, model, device):
        self.model, self._device = model, device

    @batch
    def __call__(self, image):
        with lock:
            used.add(self._device)
        time.sleep(0.05)
        return [image * 2]


parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int)
parser.add_argument("--grpc", type=int)
parser.add_argument("--metrics", type=int)
FLAGS = parser.parse_args()

infer_callables = [infer_fn_factory(d) for d in DEVICES] + [_Other(None, "cpu")]
config = TritonConfig(http_port=FLAGS.port)
d = config.to_dict()
config = TritonConfig.from_dict({**d, "grpc_port": FLAGS.grpc, "metrics_port": FLAGS.metrics})
triton = Triton(config=config)
triton.bind("resnet", infer_callables, [Tensor(name="image", dtype=np.float32, shape=(3, 4, 4))],
            [Tensor(name="out", dtype=np.float32, shape=(3, 4, 4))], 1, ModelConfig(max_batch_size=1))
triton.run()


def call(n):
    with ModelClient("localhost:%s" % FLAGS.port, "resnet") as c:
        return float(c.infer_sample(np.full((3, 4, 4), n, np.float32))["out"].sum())


with ThreadPoolExecutor(8) as ex:
    sums = list(ex.map(call, range(24)))
triton.stop()
print(sums == [n * 2 * 48.0 for n in range(24)], sorted(used))
