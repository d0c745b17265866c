import argparse, sys
import numpy as np
from tritonclient.utils import *
from tritonclient.http import *
import tritonclient.http as httpclient
import tritonclient.grpc as grpcclient

parser = argparse.ArgumentParser()
parser.add_argument('-u', '--url', default='localhost:8000')
parser.add_argument('-g', '--grpc-url', default='localhost:8001')
FLAGS = parser.parse_args()

# star import: InferInput is of http here
client = InferenceServerClient(FLAGS.url)
in0 = np.arange(start=0, stop=16, dtype=np.int32).reshape(1, 16)
in1 = np.ones(shape=(1, 16), dtype=np.int32)
in0n = np.array([str(x).encode('utf-8') for x in in0.reshape(in0.size)], dtype=np.object_).reshape(in0.shape)
in1n = np.array([str(x) for x in in1.reshape(in1.size)], dtype=np.str_).reshape(in1.shape).astype(np.object_)


def check(results, as_text=False):
    out0 = results.as_numpy('OUTPUT0')
    out1 = results.as_numpy('OUTPUT1')
    for i in range(16):
        r0, r1 = int(out0[0][i]), int(out1[0][i])
        if r0 != in0[0][i] + 1 or r1 != in0[0][i] - 1:
            print("incorrect", out0, out1)
            sys.exit(1)
    print(out0[0][:4], type(out0[0][0]).__name__)


for binary in True, False:
    a, b = InferInput('INPUT0', [1, 16], "BYTES"), InferInput('INPUT1', [1, 16], "BYTES")
    a.set_data_from_numpy(in0n, binary_data=binary)
    b.set_data_from_numpy(in1n, binary)
    outs = [InferRequestedOutput('OUTPUT0', binary), InferRequestedOutput('OUTPUT1', binary_data=binary)]
    check(client.infer('simple_string', [a, b], outputs=outs))

g = grpcclient.InferenceServerClient(FLAGS.grpc_url)
a, b = grpcclient.InferInput('INPUT0', [1, 16], "BYTES"), grpcclient.InferInput('INPUT1', [1, 16], "BYTES")
a.set_data_from_numpy(in0n)
b.set_data_from_numpy(in1n)
check(g.infer('simple_string', [a, b]))

# bytes that are not UTF-8, empty ones, long ones, umlauts
odd = np.array([[b"\x00\xff\xfe", b"", "gr\u00fc\u00df".encode(), b"x" * 100000]], dtype=np.object_)
for c, lib in (client, httpclient), (g, grpcclient):
    x = lib.InferInput('INPUT0', odd.shape, "BYTES")
    x.set_data_from_numpy(odd)
    back = c.infer("simple_identity", [x]).as_numpy("OUTPUT0")
    if back.tolist() != odd.tolist():
        print("identity broken"); sys.exit(1)

# helpers of utils
s = serialize_byte_tensor(np.array([b"ab", b""], dtype=np.object_))
print(s.item(), deserialize_bytes_tensor(s.item()).tolist(), serialized_byte_size(s))
print(np_to_triton_dtype(np.float16), triton_to_np_dtype("BYTES"), np_to_triton_dtype(bool), np_to_triton_dtype(np.object_))
try:
    a = InferInput('INPUT0', [1, 16], "BYTES")
    a.set_data_from_numpy([1, 2, 3])
except InferenceServerException as e:
    print("not an array:", e)
try:
    InferInput('INPUT0', [1, 3], "INT32").set_data_from_numpy(np.zeros((1, 3), np.float32))
except InferenceServerException as e:
    print("wrong type:", e)
try:
    raise_error("mine")
except InferenceServerException as e:
    print(e.message(), e.status(), e.debug_details())
print("PASS: string")
