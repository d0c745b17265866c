#!/usr/bin/env python
# One stream for everything: synchronous and asynchronous requests, failing ones among them, several sequences.
import argparse
from functools import partial
from pytriton.compat.tensorrtserver.api import *

parser = argparse.ArgumentParser()
parser.add_argument('-u', '--url', default='localhost:8001')
FLAGS = parser.parse_args()
START, END = InferRequestHeader.Flag.Value("FLAG_SEQUENCE_START"), InferRequestHeader.Flag.Value("FLAG_SEQUENCE_END")
RAW = InferContext.ResultFormat.RAW
before = threading.active_count()
order = []
out = queue.Queue()


def cb(n, ctx, rid):
    order.append(n)
    try:
        out.put((n, ctx.get_async_run_results(rid)['y'][0][0]))
    except InferenceServerException as ex:
        out.put((n, ex.message()))


ctx = InferContext(FLAGS.url, ProtocolType.GRPC, "choosy", -1, False, 0, True)
for n in range(20):
    value = -1.0 if n % 5 == 4 else float(n)
    ctx.async_run(partial(cb, n), {'x': [np.full(4, value, np.float32)]}, {'y': RAW})
    if n == 10:
        # in the middle of it all
        print("sync in between:", ctx.run({'x': [np.full(4, 0.5, np.float32)]}, {'y': RAW})['y'][0][0])
got = dict(out.get(timeout=60) for _ in range(20))
for n in range(20):
    expected = "too small" if n % 5 == 4 else 2.0 * n
    if got[n] != expected:
        print("error: request %d gave %r" % (n, got[n]))
        sys.exit(1)
print("in order:", order == list(range(20)))
try:
    ctx.run({'x': [np.full(4, -1, np.float32)]}, {'y': RAW})
    sys.exit(1)
except InferenceServerException as ex:
    print("sync error:", ex.message(), ctx.get_last_request_id())
ctx.close()

# three sequences on one context; the model has one slot
seq = InferContext(FLAGS.url, ProtocolType.GRPC, "simple_sequence", -1, False, 0, True)
ids = [2**64 - 1, 2**63, 5]
sums = queue.Queue()


def add(corr, ctx, rid):
    sums.put((corr, int(ctx.get_async_run_results(rid)['OUTPUT'][0][0])))


for step in range(4):
    for k, corr in enumerate(ids):
        seq.async_run(partial(add, corr), {'INPUT': [np.array([10 ** k], np.int32)]}, {'OUTPUT': RAW}, 1,
                      (START if step == 0 else 0) | (END if step == 3 else 0), corr)
got = {}
for _ in range(12):
    corr, total = sums.get(timeout=60)
    got.setdefault(corr, []).append(total)
for k, corr in enumerate(ids):
    print(corr, got[corr])
    if got[corr] != [10 ** k * n for n in (1, 2, 3, 4)]:
        sys.exit(1)
print("corr id now:", seq.correlation_id())
seq.close()
import time
for _ in range(100):
    if threading.active_count() <= before: break
    time.sleep(0.05)
print("threads left:", threading.active_count() - before)
print("PASS: stream_mix")
