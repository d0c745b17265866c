#!/usr/bin/env python
# What the server refuses. Ends with an error on purpose if asked to.
import argparse
import traceback
from pytriton.compat.tensorrtserver.api import *

parser = argparse.ArgumentParser()
parser.add_argument('-u', '--url', default='localhost:8000')
parser.add_argument('-i', '--protocol', default='http')
parser.add_argument('--die', action='store_true')
FLAGS = parser.parse_args()
protocol = ProtocolType.from_str(FLAGS.protocol)
x = np.ones(4, np.float32)
RAW = InferContext.ResultFormat.RAW

if FLAGS.die:
    ctx = InferContext(FLAGS.url, protocol, "choosy", -1)
    ctx.run({'x': [-x]}, {'y': RAW})


def attempt(what, f, *words):
    try:
        f()
    except InferenceServerException as ex:
        missing = [w for w in words if w not in ex.message()]
        print(what, "->", "ok" if not missing else "%s lacks %s" % (ex.message(), missing))
        assert traceback.format_exc().count("Traceback") == 1, traceback.format_exc()
        if missing:
            sys.exit(1)
    else:
        print(what, "-> no error")
        sys.exit(1)


attempt("unknown model", lambda: InferContext(FLAGS.url, protocol, "nonexistent", -1), "nonexistent")
attempt("unknown version", lambda: InferContext(FLAGS.url, protocol, "simple", 99), "simple", "99")
attempt("status of unknown model", lambda: ServerStatusContext(FLAGS.url, protocol, "nonexistent").get_server_status(), "nonexistent")
attempt("load", lambda: ModelControlContext(FLAGS.url, protocol).load("nonexistent"), "nonexistent")
attempt("streaming over http", lambda: InferContext(FLAGS.url, ProtocolType.HTTP, "simple", -1, False, 0, True), "GRPC")
attempt("protocol", lambda: ServerHealthContext(FLAGS.url, 7), "ProtocolType")
ctx = InferContext(FLAGS.url, protocol, "choosy", -1)
attempt("the model", lambda: ctx.run({'x': [-x]}, {'y': RAW}), "too small")
attempt("input", lambda: ctx.run({'z': [x]}, {'y': RAW}), "z")
attempt("output", lambda: ctx.run({'x': [x]}, {'z': RAW}), "z")
attempt("batch", lambda: ctx.run({'x': [x]}, {'y': RAW}, 2), "batch_size")
attempt("result", lambda: ctx.get_async_run_results(123456789), "123456789")
print(ctx.get_last_request_id())
print(ctx.run({'x': [x]}, {'y': RAW})['y'][0].tolist())
print("PASS: errors")
