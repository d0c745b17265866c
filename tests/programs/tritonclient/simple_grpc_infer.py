#!/usr/bin/env python
import argparse
import sys

import numpy as np
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

parser = argparse.ArgumentParser()
parser.add_argument('-v', '--verbose', action="store_true", required=False, default=False)
parser.add_argument('-u', '--url', type=str, required=False, default='localhost:8001')
parser.add_argument('-s', '--ssl', action="store_true", required=False, default=False)
parser.add_argument('-t', '--client-timeout', type=float, required=False, default=None)
parser.add_argument('-r', '--root-certificates', type=str, required=False, default=None)
parser.add_argument('-p', '--private-key', type=str, required=False, default=None)
parser.add_argument('-x', '--certificate-chain', type=str, required=False, default=None)
parser.add_argument('-C', '--grpc-compression-algorithm', type=str, required=False, default=None)
FLAGS = parser.parse_args()

try:
    triton_client = grpcclient.InferenceServerClient(
        FLAGS.url, FLAGS.verbose, FLAGS.ssl, FLAGS.root_certificates, FLAGS.private_key, FLAGS.certificate_chain)
except Exception as e:
    print("channel creation failed: " + str(e))
    sys.exit()

model_name = "simple"

inputs = []
outputs = []
inputs.append(grpcclient.InferInput('INPUT0', [1, 16], "INT32"))
inputs.append(grpcclient.InferInput('INPUT1', [1, 16], "INT32"))
input0_data = np.expand_dims(np.arange(start=0, stop=16, dtype=np.int32), axis=0)
input1_data = np.ones(shape=(1, 16), dtype=np.int32)
inputs[0].set_data_from_numpy(input0_data)
inputs[1].set_data_from_numpy(input1_data)
print(inputs[0].name(), list(inputs[0].shape()), inputs[0].datatype())

outputs.append(grpcclient.InferRequestedOutput('OUTPUT0'))
outputs.append(grpcclient.InferRequestedOutput('OUTPUT1'))
print(outputs[0].name())

# everything
results = triton_client.infer(model_name=model_name, inputs=inputs, outputs=outputs,
                              client_timeout=FLAGS.client_timeout, headers={'test': '1'},
                              compression_algorithm=FLAGS.grpc_compression_algorithm)

statistics = triton_client.get_inference_statistics(model_name=model_name)
print(statistics)
if len(statistics.model_stats) != 1:
    print("FAILED: Inference Statistics")
    sys.exit(1)
as_json = triton_client.get_inference_statistics(model_name, "", None, True)
if int(as_json["model_stats"][0]["inference_stats"]["success"]["count"]) < 1:
    sys.exit(1)

output0_data = results.as_numpy('OUTPUT0')
output1_data = results.as_numpy('OUTPUT1')
for i in range(16):
    print("%d + %d = %d" % (input0_data[0][i], input1_data[0][i], output0_data[0][i]))
    print("%d - %d = %d" % (input0_data[0][i], input1_data[0][i], output1_data[0][i]))
    if (input0_data[0][i] + input1_data[0][i]) != output0_data[0][i]:
        print("sync infer error: incorrect sum")
        sys.exit(1)
    if (input0_data[0][i] - input1_data[0][i]) != output1_data[0][i]:
        print("sync infer error: incorrect difference")
        sys.exit(1)

# without outputs, by position, an id as the 5th argument
results = triton_client.infer(model_name, inputs, "1", None, "1")
response = results.get_response()
if response.id != "1" or response.model_name != "simple" or response.model_version != "1":
    sys.exit(1)
if results.get_response(as_json=True)["model_name"] != "simple":
    sys.exit(1)
if list(results.get_output("OUTPUT1").shape) != [1, 16] or results.get_output("no") is not None:
    sys.exit(1)

# the whole batch that the model takes, same objects used again
for batch in [8, 2, 5]:
    for one in inputs:
        one.set_shape([batch, 16])
        one.set_data_from_numpy(np.full([batch, 16], batch, np.int32))
    if (triton_client.infer(model_name, inputs).as_numpy("OUTPUT0") != 2 * batch).any():
        sys.exit(1)

try:
    triton_client.infer("wrong_model", inputs)
    sys.exit(1)
except InferenceServerException as e:
    print(e.status(), e.message(), e.debug_details() is not None)

print('PASS: infer')
