"""A queue of futures."""
import sys
import time
from concurrent.futures import wait
import numpy as np
from pytriton.client import FuturesModelClient
from pytriton.client.exceptions import PyTritonClientClosedError, PyTritonClientQueueFullError
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

HTTP, GRPC, METRICS = map(int, sys.argv[1:])


@batch
def slow(x):
    time.sleep(0.1)
    return {"y": x + 1}


with Triton(config=TritonConfig(http_port=HTTP, grpc_port=GRPC, metrics_port=METRICS)) as triton:
    triton.bind("slow", slow, [Tensor(name="x", dtype=np.float32, shape=(1,))], [Tensor(name="y", dtype=np.float32, shape=(1,))],
                config=ModelConfig(max_batch_size=2))
    triton.run()
    one = np.array([1], np.float32)
    for url in (f"localhost:{HTTP}", f"grpc://localhost:{GRPC}"):
        with FuturesModelClient(url, "slow", max_workers=4) as client:
            client.wait_for_model(15).result()
            fs = [client.infer_sample(x=one * i) for i in range(10)]
            fs.append(client.infer_batch(np.ones((2, 1), np.float32)))
            wait(fs)
            print([float(f.result()["y"][0]) if f.result()["y"].ndim == 1 else f.result()["y"].tolist() for f in fs])
            print(client.model_config().result().model_name)
        try:
            client.infer_sample(one)
        except PyTritonClientClosedError:
            print("closed")
    # more requests than there is room for
    with FuturesModelClient(f"localhost:{HTTP}", "slow", max_workers=1, max_queue_size=1, non_blocking=True) as client:
        full, done = 0, []
        for _ in range(20):
            try:
                done.append(client.infer_sample(one))
            except PyTritonClientQueueFullError:
                full += 1
        print("full:", full > 0, all(float(f.result()["y"][0]) == 2 for f in done))
    with FuturesModelClient(f"localhost:{HTTP}", "slow") as client:
        bad = client.infer_sample(np.array(["text"]))
        print(type(bad.exception()).__mro__[-2].__name__)
