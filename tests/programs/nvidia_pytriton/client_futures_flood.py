# prints: submitted 2000
# prints: sum 3998000.0
# prints: queued calls finished: 60 of 60
# prints: closed client refuses
# prints: full
"""Score everything at once; the queue is somebody else's problem."""
import socket, sys, time
from concurrent.futures import as_completed, wait

import numpy as np
from pytriton.client import FuturesModelClient
from pytriton.client.exceptions import *
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

socks = [socket.socket() for _ in range(3)]
for s in socks: s.bind(("127.0.0.1", 0))
ports = [s.getsockname()[1] for s in socks]
for s in socks: s.close()

@batch
def _double(x): return {"y": x * 2}

@batch
def _slow(x):
    time.sleep(.02)
    return {"y": x}

N = 2000
with Triton(config=TritonConfig(http_port=ports[0], grpc_port=ports[1], metrics_port=ports[2])) as triton:
    for name, fn in (("Double", _double), ("Slow", _slow)):
        triton.bind(name, fn, [Tensor(name="x", dtype=np.float32, shape=(1,))], [Tensor(name="y", dtype=np.float32, shape=(1,))],
                    config=ModelConfig(max_batch_size=64, batcher=DynamicBatcher(max_queue_delay_microseconds=100)))
    with FuturesModelClient(f"grpc://localhost:{ports[1]}", "Double") as client:
        futures = [client.infer_sample(np.array([i], dtype=np.float32)) for i in range(N)]
        print("submitted", len(futures))
        total = 0
        for f in as_completed(futures):
            total += float(f.result()["y"][0])
        print("sum", total)

    client = FuturesModelClient(f"localhost:{ports[0]}", "Slow", max_workers=4)
    futures = [client.infer_sample(np.array([i], dtype=np.float32)) for i in range(60)]
    client.close(wait=False)          # do not block the request handler
    done, not_done = wait(futures, timeout=60)
    ok = sum(1 for f in done if not f.cancelled() and f.exception() is None)
    print("queued calls finished:", ok, "of", len(futures))
    try:
        client.infer_sample(np.array([1], dtype=np.float32))
        sys.exit(1)
    except PyTritonClientClosedError:
        print("closed client refuses")

    with FuturesModelClient(f"localhost:{ports[0]}", "Slow", max_workers=1, max_queue_size=1, non_blocking=True) as client:
        fs = []
        try:
            for i in range(100):
                fs.append(client.infer_sample(np.array([i], dtype=np.float32)))
        except PyTritonClientQueueFullError:
            print("full")
