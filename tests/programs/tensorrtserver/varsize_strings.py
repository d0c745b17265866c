#!/usr/bin/env python
import argparse
from builtins import range
from pytriton.compat.tensorrtserver.api import *

parser = argparse.ArgumentParser()
parser.add_argument('-u', '--url', default='localhost:8000')
parser.add_argument('-i', '--protocol', default='http')
parser.add_argument('-s', '--streaming', action='store_true')
FLAGS = parser.parse_args()
protocol = ProtocolType.from_str(FLAGS.protocol)
ctx = InferContext(FLAGS.url, protocol, "varsize", -1, streaming=FLAGS.streaming)

np.random.seed(0)
for n in (1, 2, 7, 100):
    words = [("é" * (k % 5) + str(k)) for k in range(n)]
    batch = [np.array(words, dtype=np.object_), np.array([w.encode('utf-8') for w in words], dtype=np.object_)]
    matrices = [np.random.rand(n, 3).astype(np.float32) for _ in range(2)]
    res = ctx.run({'words': batch, 'matrix': matrices},
                  {'words_out': InferContext.ResultFormat.RAW, 'matrix_out': InferContext.ResultFormat.RAW}, 2)
    for b in range(2):
        got = [w.decode('utf-8') for w in res['words_out'][b]]
        if got != words or not (res['matrix_out'][b] == matrices[b]).all():
            print("error: incorrect result", got)
            sys.exit(1)
    print(n, res['words_out'][0].dtype, res['matrix_out'][1].shape)

# np.str_ arrays and fixed width bytes
fixed = np.array([b'a', b'bcd'], dtype='S3')
uni = np.array([u'a', u'bcd'])
m = np.zeros((1, 3), np.float32)
for arr in (fixed, uni):
    r = ctx.run({'words': [arr], 'matrix': [m]}, {'words_out': InferContext.ResultFormat.RAW}, 1)
    print(list(r['words_out'][0]))

# what does not fit is an error that one can read
for bad in ({'words': [fixed]}, {'words': [fixed], 'matrix': [np.zeros((1, 4), np.float32)]},
            {'words': fixed, 'matrix': [m]}, {'words': [fixed], 'matrix': [m.astype(np.float64)]}):
    try:
        ctx.run(bad, {'words_out': InferContext.ResultFormat.RAW}, 1)
        print("no error?")
        sys.exit(1)
    except InferenceServerException as ex:
        print("error:", ex.message().split()[0], ex.message().split()[1])
print("PASS: varsize")
