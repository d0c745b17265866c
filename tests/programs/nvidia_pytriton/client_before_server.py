# prints: client started
# prints: server up, model still loading
# prints: result: [[2. 4. 6.]]
# prints: alive after: False
"""docker compose up: the client comes first, then the server, and the weights take their time after that."""
import socket
import threading
import time

import numpy as np
from pytriton.client import *
from pytriton.decorators import *
from pytriton.model_config import *
from pytriton.triton import *

def find_free_port():
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return s.getsockname()[1]

HTTP, GRPC, METRICS = find_free_port(), find_free_port(), find_free_port()
result = None
failure = None

def client_thread():
    global result, failure
    try:
        with ModelClient("http://localhost:%d" % HTTP, "slow", init_timeout_s=120) as client:
            result = client.infer_batch(np.array([[1, 2, 3]], dtype=np.float32))
    except Exception as e:
        failure = e

t = threading.Thread(target=client_thread)
t.start()
print("client started", flush=True)
time.sleep(0.5)

@batch
def infer(x):
    return {"y": x * 2}

with Triton(config=TritonConfig(http_port=HTTP, grpc_port=GRPC, metrics_port=METRICS)) as triton:
    print("server up, model still loading", flush=True)
    time.sleep(7)  # the weights
    triton.bind(model_name="slow", infer_func=infer,
                inputs=[Tensor(name="x", dtype=np.float32, shape=(-1,))],
                outputs=[Tensor(name="y", dtype=np.float32, shape=(-1,))])
    t.join(60)
    if failure is not None:
        raise failure
    print("result:", result["y"])
print("alive after:", triton.is_alive())
