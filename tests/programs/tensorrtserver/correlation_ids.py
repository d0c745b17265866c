#!/usr/bin/env python
# run() with everything by position: flags, corr_id, priority, timeout_us
import sys
from pytriton.compat.tensorrtserver.api import *

url, protocol, streaming = sys.argv[1], ProtocolType.from_str(sys.argv[2]), len(sys.argv) > 3
S, E = InferRequestHeader.FLAG_SEQUENCE_START, InferRequestHeader.FLAG_SEQUENCE_END
RAW = InferContext.ResultFormat.RAW
x = [np.zeros(1, np.int32)]
ctx = InferContext(url, protocol, "simple_correlation", -1, False, np.int64(7), streaming)
print(ctx.correlation_id())
for corr in (0, 1, np.uint32(12345), 2**63 - 1, 2**63, 2**64 - 1):
    r = ctx.run({'INPUT': x}, {'CORRID': RAW}, 1, S | E, corr, 0, 10**9)
    print(corr, "->", r['CORRID'][0][0])
    if corr and r['CORRID'][0][0] != corr:
        sys.exit(1)
big = InferContext(url, protocol, "simple_correlation", -1, False, 2**64 - 1, streaming)
q = queue.Queue()
big.async_run(lambda c, i: q.put(c.get_async_run_results(i)['CORRID'][0][0]), {'INPUT': x}, {'CORRID': RAW}, 1, S | E, 0, 1, 0)
print("async", q.get(timeout=60))
try:
    InferContext(url, protocol, "simple_correlation", -1, False, 2**64)
    sys.exit(1)
except InferenceServerException:
    pass
print("PASS: correlation_ids")
