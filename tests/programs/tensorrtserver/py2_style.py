#!/usr/bin/env python
# Worked with python 2.7 and 3.5. Everything comes with the star.
from __future__ import print_function
from builtins import range
from pytriton.compat.tensorrtserver.api import *
import argparse

FLAGS = None
RESULTS = {}
event = threading.Event()


def cb(ctx, rid):
    try:
        for name, values in iteritems(ctx.get_async_run_results(rid)):
            RESULTS[name] = values[0]
    except:
        print("failed:", sys.exc_info()[1], file=sys.stderr)
        os._exit(3)
    event.set()


def main(argv):
    global FLAGS
    p = argparse.ArgumentParser(prog=os.path.basename(argv[0]))
    p.add_argument("-u", "--url", default="localhost:8000")
    p.add_argument("-i", "--protocol", default="http")
    FLAGS = p.parse_args(argv[1:])
    work = queue.Queue()
    for pair in zip(range(3), "abc"):
        work.put(pair)
    ctx = InferContext(FLAGS.url, ProtocolType.from_str(FLAGS.protocol.upper()), "simple", -1)
    while not work.empty():
        n, letter = work.get()
        payload = struct.pack("<16i", *([n] * 16))
        data = np.frombuffer(payload, dtype=np.int32)        # read-only, too
        event.clear()
        ctx.async_run(cb, {"INPUT0": [data], "INPUT1": [data]},
                      {"OUTPUT0": ctx.ResultFormat.RAW, "OUTPUT1": ctx.ResultFormat.RAW}, 1)
        if not event.wait(60):
            return 1
        print(letter, RESULTS["OUTPUT0"][0], RESULTS["OUTPUT1"][0])
        if RESULTS["OUTPUT0"].sum() != 32 * n:
            return 1
    # c types leaked, too
    handle = c_void_p()
    print("%s %d" % (handle.value, sizeof(c_uint64)))
    print("PASS: py2_style")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
