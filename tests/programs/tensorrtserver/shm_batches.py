#!/usr/bin/env python
# One region for all inputs' batches, one for the outputs, asynchronously. Strings as well.
import argparse, os, sys, time
from functools import partial
import numpy as np
from pytriton.compat.tensorrtserver.api import *
from pytriton.compat.tensorrtserver import shared_memory as shm

ap = argparse.ArgumentParser()
ap.add_argument('-u', '--url', default='localhost:8000')
ap.add_argument('-i', '--protocol', default='http')
ap.add_argument('-s', '--streaming', action='store_true')
A = ap.parse_args()
P = ProtocolType.from_str(A.protocol)
ctl = SharedMemoryControlContext(A.url, P)
BATCH = 4
in0 = [np.arange(16, dtype=np.int32) * k for k in range(BATCH)]
in1 = [np.full(16, 10 * k, dtype=np.int32) for k in range(BATCH)]
nbytes = 64 * BATCH
handles = []


def region(name, size):
    h = shm.create_shared_memory_region(name, "/v1_%s_%d" % (name, os.getpid()), size)
    ctl.register(h)
    handles.append(h)
    return h


h0, h1 = region("batch_in0", nbytes), region("batch_in1", nbytes)
o0, o1 = region("batch_out0", nbytes), region("batch_out1", 2 * nbytes)   # more than enough
shm.set_shared_memory_region(h0, in0)
shm.set_shared_memory_region(h1, in1)

ctx = InferContext(A.url, P, "simple", -1, False, 0, A.streaming)
q = queue.Queue()
ctx.async_run(lambda c, i: q.put(c.get_async_run_results(i)),
              {'INPUT0': h0, 'INPUT1': (h1, [16])},
              {'OUTPUT0': (InferContext.ResultFormat.RAW, o0), 'OUTPUT1': (InferContext.ResultFormat.RAW, o1)}, BATCH)
res = q.get(timeout=60)
for k in range(BATCH):
    if (res['OUTPUT0'][k] != in0[k] + in1[k]).any() or (res['OUTPUT1'][k] != in0[k] - in1[k]).any():
        print("FAIL", k, res)
        sys.exit(1)
print("batch of", len(res['OUTPUT0']), "last", res['OUTPUT1'][-1][:4].tolist())

# strings
words = np.array([("w%d" % i).encode() for i in range(16)], dtype=object)
zeros = np.array(["%d" % i for i in range(16)], dtype=object)
s0 = serialize_string_tensor(zeros)
hs = region("strings_in", s0.nbytes)
hr = region("strings_out", 1024)
shm.set_shared_memory_region(hs, [s0])
sctx = InferContext(A.url, P, "simple_string", None, False, streaming=A.streaming)
res = sctx.run({'INPUT0': (hs, (16,)), 'INPUT1': [zeros]},
               {'OUTPUT0': (InferContext.ResultFormat.RAW, hr), 'OUTPUT1': InferContext.ResultFormat.RAW})
print("strings", [x.decode() for x in res['OUTPUT0'][0][:4]], res['OUTPUT1'][0][5])
if [int(x) for x in res['OUTPUT0'][0]] != [2 * i for i in range(16)]:
    sys.exit(1)
sctx.close()
ctx.close()
for h in handles:
    for attempt in range(100):   # the server may hold on to it for a moment
        try:
            ctl.unregister(h)
            break
        except:
            time.sleep(0.05)
    shm.destroy_shared_memory_region(h)
print("PASS shm_batches")
