#!/usr/bin/env python
import argparse
from builtins import range
from functools import partial
from pytriton.compat.tensorrtserver.api import *

# globals, as one does
done = queue.Queue()
failed = []
N = 12


def on_done(tag, ctx, request_id):
    results = ctx.get_async_run_results(request_id)
    done.put((tag, results['OUTPUT0'][0][0], results['OUTPUT1'][0][0]))


def on_done_badly(ctx, request_id):
    done.put(("bad", 0, 0))
    raise RuntimeError("this callback is broken")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('-v', '--verbose', action="store_true")
    parser.add_argument('-u', '--url', default='localhost:8000')
    parser.add_argument('-i', '--protocol', default='http')
    parser.add_argument('-s', '--streaming', action="store_true")
    FLAGS = parser.parse_args()
    protocol = ProtocolType.from_str(FLAGS.protocol)

    ctx = InferContext(FLAGS.url, protocol, "simple", -1, FLAGS.verbose, 0, FLAGS.streaming)
    ones = np.ones(16, dtype=np.int32)
    outputs = { 'OUTPUT0' : ctx.ResultFormat.RAW, 'OUTPUT1' : ctx.ResultFormat.RAW }
    for i in range(N):
        ctx.async_run(partial(on_done, i), { 'INPUT0' : [ones * i], 'INPUT1' : [ones] }, outputs, 1)
    ctx.async_run(on_done_badly, { 'INPUT0' : [ones], 'INPUT1' : [ones] }, outputs)

    seen = {}
    for _ in range(N + 1):
        tag, plus, minus = done.get(timeout=60)
        seen[tag] = (plus, minus)
    for i in range(N):
        if seen[i] != (i + 1, i - 1):
            print("error: request {} gave {}".format(i, seen[i]))
            sys.exit(1)

    # the context is still good after all that, synchronously and asynchronously
    r = ctx.run({ 'INPUT0' : [ones], 'INPUT1' : [ones] }, outputs, 1)
    if r['OUTPUT0'][0][3] != 2:
        sys.exit(1)
    if ctx.get_stat()['completed_request_count'] != N + 2:
        print(ctx.get_stat())
        sys.exit(1)
    print("PASS: {} callbacks".format(len(seen)))


main()
