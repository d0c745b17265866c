# what can go wrong, will
import argparse
import socket
import sys
import numpy as np
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import *

parser = argparse.ArgumentParser()
parser.add_argument("-u"); parser.add_argument("-g")
FLAGS = parser.parse_args()
failures = 0


def expect(what, call, *words):
    global failures
    try:
        call()
    except InferenceServerException as e:
        text = "%s|%s|%s" % (e, e.message(), e.status())
        if all(w in text for w in words):
            print("ok  ", what, "->", e.status())
            return
        print("FAIL", what, text)
    except:
        print("FAIL", what, sys.exc_info())
    else:
        print("FAIL", what, "did not raise")
    failures += 1


def two(lib, shape=(1, 16), names=("INPUT0", "INPUT1"), dtype=np.int32):
    out = []
    for n in names:
        out.append(lib.InferInput(n, list(shape), np_to_triton_dtype(dtype)))
        out[-1].set_data_from_numpy(np.zeros(shape, dtype))
    return out


def vector(lib, value):
    x = lib.InferInput("INPUT", [1], "FP32")
    x.set_data_from_numpy(np.array([value], np.float32))
    return [x]


for lib, url, invalid, internal in ((httpclient, FLAGS.u, "400", "500"), (grpcclient, FLAGS.g, "INVALID_ARGUMENT", "INTERNAL")):
    c = lib.InferenceServerClient(url)
    expect("unknown model", lambda: c.infer("nope", two(lib)), "Request for unknown model")
    expect("unknown version", lambda: c.infer("simple", two(lib), "3"), "version")
    expect("version as int", lambda: c.infer("simple", two(lib), model_version=3))
    expect("one input", lambda: c.infer("simple", two(lib)[:1]), invalid)
    expect("wrong name", lambda: c.infer("simple", two(lib, names=("INPUT0", "INPUTX"))), invalid)
    expect("wrong type", lambda: c.infer("simple", two(lib, dtype=np.float32)), invalid)
    expect("wrong shape", lambda: c.infer("simple", two(lib, (1, 15))), invalid)
    expect("too many rows", lambda: c.infer("simple", two(lib, (9, 16))), invalid, "8")
    expect("unknown output", lambda: c.infer("simple", two(lib), outputs=[lib.InferRequestedOutput("NOPE")]), invalid)
    expect("callable raises", lambda: c.infer("fails", vector(lib, 13)), internal, "13 is an unlucky number")
    expect("unknown stats", lambda: c.get_inference_statistics("nope"))
    expect("unknown region", lambda: c.get_system_shared_memory_status("nope"))
    expect("set data of a shape that differs", lambda: lib.InferInput("INPUT", [2], "FP32").set_data_from_numpy(np.zeros(3, np.float32)))
    if c.infer("fails", vector(lib, 1)).as_numpy("OUTPUT")[0] != 1:
        failures += 1

# nobody listens there
s = socket.socket()
s.bind(("127.0.0.1", 0))
dead = "127.0.0.1:%d" % s.getsockname()[1]
s.close()
expect("grpc to nobody", lambda: grpcclient.InferenceServerClient(dead).is_server_live(), "UNAVAILABLE")
try:
    httpclient.InferenceServerClient(dead).is_server_live()
    failures += 1
except Exception as e:
    print("ok  ", type(e).__name__)
try:
    httpclient.InferenceServerClient("http://" + FLAGS.u)
    failures += 1
except Exception as e:
    print("ok  ", e)
try:
    httpclient.InferenceServerClient(FLAGS.u, connection_timeout=5.0, network_timeout=0.2).infer("slow", vector(httpclient, 3))
    failures += 1
except Exception as e:
    print("ok  ", type(e).__name__)
e = InferenceServerException("text", "status", "details")
print(e, e.message(), e.status(), e.debug_details())
if failures:
    sys.exit(1)
print("PASS: errors")
