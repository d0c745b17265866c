#!/usr/bin/env python
import argparse
import numpy as np
from builtins import range
from builtins import str
from pytriton.compat.tensorrtserver.api import *

parser = argparse.ArgumentParser()
parser.add_argument('-v', '--verbose', action="store_true", default=False)
parser.add_argument('-u', '--url', type=str, default='localhost:8000')
parser.add_argument('-i', '--protocol', type=str, default='http')
FLAGS = parser.parse_args()

protocol = ProtocolType.from_str(FLAGS.protocol)
model_name = "simple_string"
model_version = -1
batch_size = 1

infer_ctx = InferContext(FLAGS.url, protocol, model_name, model_version, FLAGS.verbose)

# Create the data for the two input tensors: string representations of 0..15, and ones.
in0 = np.arange(start=0, stop=16, dtype=np.int32)
in0n = np.array([str(x).encode('utf-8') for x in in0], dtype=object)
input0_data = in0n.reshape(in0.shape)
in1 = np.ones(shape=16, dtype=np.int32)
in1n = np.array([str(x) for x in in1], dtype=np.object_)
input1_data = in1n.reshape(in1.shape)

# what goes over the wire, for the curious
flat = serialize_string_tensor(input0_data)
print("{} bytes of strings".format(flat.nbytes))

result = infer_ctx.run({'INPUT0': (input0_data,), 'INPUT1': (input1_data,)},
                       {'OUTPUT0': InferContext.ResultFormat.RAW, 'OUTPUT1': InferContext.ResultFormat.RAW},
                       batch_size)

output0_data = result['OUTPUT0'][0]
output1_data = result['OUTPUT1'][0]

for i in range(16):
    r0 = output0_data[i].decode("utf-8")
    r1 = output1_data[i].decode("utf-8")
    print(str(input0_data[i]) + " + " + str(input1_data[i]) + " = " + r0)
    # Convert result from string to int to check result
    if int(r0) != in0[i] + in1[i]:
        print("error: incorrect sum")
        sys.exit(1)
    if int(r1) != in0[i] - in1[i]:
        print("error: incorrect difference")
        sys.exit(1)
print("PASS: simple_string")
