import argparse
import base64
import sys

import numpy as np
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import *

try:
    import tritonclient.utils.cuda_shared_memory as cudashm
    handle = cudashm.create_shared_memory_region("probe", 64, 0)
    cudashm.destroy_shared_memory_region(handle)
except Exception as e:
    print("no cuda here:", type(e).__name__)
    cudashm = None

p = argparse.ArgumentParser()
p.add_argument("-i", default="grpc")
p.add_argument("-u", "--url", default="localhost:8001")
a = p.parse_args()
lib = grpcclient if a.i == "grpc" else httpclient
client = lib.InferenceServerClient(url=a.url)
client.unregister_system_shared_memory()
client.unregister_cuda_shared_memory()

if cudashm is None:
    # a program must survive this as well
    try:
        client.register_cuda_shared_memory("output0_data", base64.b64encode(b"\0" * 64), 0, 64)
    except InferenceServerException as e:
        print("as expected:", e)
    print(client.get_cuda_shared_memory_status())
    client.unregister_cuda_shared_memory("output0_data")
    print("PASS: no cuda shared memory")
    sys.exit(0)

in0, in1 = np.arange(16, dtype=np.int32), np.ones(16, dtype=np.int32)
handles = {}
for name in ("input0_data", "input1_data", "output0_data", "output1_data"):
    handles[name] = cudashm.create_shared_memory_region(name, 64, 0)
    client.register_cuda_shared_memory(name, cudashm.get_raw_handle(handles[name]), 0, 64)
cudashm.set_shared_memory_region(handles["input0_data"], [in0])
cudashm.set_shared_memory_region(handles["input1_data"], [in1])
inputs = [lib.InferInput("INPUT%d" % k, [1, 16], "INT32") for k in range(2)]
outputs = [lib.InferRequestedOutput("OUTPUT%d" % k) for k in range(2)]
for k in range(2):
    inputs[k].set_shared_memory("input%d_data" % k, 64)
    outputs[k].set_shared_memory("output%d_data" % k, 64)
client.infer("simple", inputs, outputs=outputs)
print(client.get_cuda_shared_memory_status())
if (cudashm.get_contents_as_numpy(handles["output0_data"], np.int32, [16]) != in0 + in1).any():
    sys.exit(1)
if (cudashm.get_contents_as_numpy(handles["output1_data"], np.int32, [16]) != in0 - in1).any():
    sys.exit(1)
client.unregister_cuda_shared_memory()
for h in list(cudashm.allocated_shared_memory_regions()):
    cudashm.destroy_shared_memory_region(h)
print("PASS: cuda shared memory")
