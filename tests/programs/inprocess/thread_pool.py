# throughput test: many threads, one server; prints what was batched
import argparse
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytriton.inprocess as tritonserver

parser = argparse.ArgumentParser()
parser.add_argument("repository")
parser.add_argument("-n", type=int, default=200)
parser.add_argument("-t", "--threads", type=int, default=16)
opt = parser.parse_args()

server = tritonserver.Server(model_repository=opt.repository, model_control_mode=tritonserver.ModelControlMode.EXPLICIT)
server.start()
slow = server.load("slow")
print("first dim:", slow.batch_properties() == tritonserver.ModelBatchFlag.FIRST_DIM)
lock = threading.Lock()
batches = []


def work(i):
    for response in slow.infer(inputs={"x": np.array([[0.001]], np.float32)}, priority=i % 4, request_id="id-%d" % i):
        with lock:
            batches.append(float(np.from_dlpack(response.outputs["y"])[0, 0]))
        assert response.request_id == "id-%d" % i


with ThreadPoolExecutor(opt.threads) as ex:
    list(ex.map(work, range(opt.n)))
print("answers", len(batches), "batched", max(batches) > 1)
stats = slow.statistics()["model_stats"][0]
print("inferences", stats["inference_count"] > 0, "fewer executions", stats["execution_count"] < stats["inference_count"])

# a request object is used again and again, also by several threads
request = tritonserver.InferenceRequest(slow, inputs={"x": np.zeros((2, 1), np.float32)}, timeout=0)
with ThreadPoolExecutor(4) as ex:
    print("reused", sum(len(list(slow.infer(request))) for _ in range(5)), len(list(ex.map(lambda _: next(slow.infer(request)), range(20)))))

# the queue is busy, so this one is too late
busy = slow.infer(inputs={"x": np.array([[0.2]], np.float32)})
fill = []
for _ in range(3):
    fill.append(slow.infer(inputs={"x": np.full((8, 1), 0.2, np.float32)}))
try:
    list(slow.infer(inputs={"x": np.zeros((1, 1), np.float32)}, timeout=1000))
    print("was in time?")
    sys.exit(1)
except tritonserver.UnavailableError as e:
    print("UnavailableError:", "timeout" in str(e).lower())
print("busy", np.from_dlpack(next(busy).outputs["y"]).tolist())
waiting = [slow.infer(inputs={"x": np.array([[30.0]], np.float32)}) for _ in range(2)]
for w in waiting:
    w.cancel()
n = 0
for w in waiting:
    try:
        list(w)
    except tritonserver.TritonError:
        n += 1
print("cancelled", n)
server.stop()
