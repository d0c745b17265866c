#!/usr/bin/env python
"""system shared memory for inputs and outputs, http or grpc"""
import argparse
import os
import sys

import numpy as np
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
import tritonclient.utils.shared_memory as shm
from tritonclient import utils

FLAGS = None

if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('-i', default='http')
    parser.add_argument('-u', '--url', type=str, default='localhost:8000')
    FLAGS = parser.parse_args()
    client_lib = httpclient if FLAGS.i == 'http' else grpcclient
    triton_client = client_lib.InferenceServerClient(FLAGS.url)

    # to make sure no shared memory regions are registered
    triton_client.unregister_system_shared_memory()
    triton_client.unregister_cuda_shared_memory()

    model_name = "simple"
    input0_data = np.arange(start=0, stop=16, dtype=np.int32)
    input1_data = np.ones(shape=16, dtype=np.int32)
    input_byte_size = input0_data.size * input0_data.itemsize
    output_byte_size = input_byte_size

    # both outputs in one region, and so the inputs
    shm_op_handle = shm.create_shared_memory_region("output_data", "/output_simple_" + FLAGS.i, output_byte_size * 2)
    triton_client.register_system_shared_memory("output_data", "/output_simple_" + FLAGS.i, output_byte_size * 2)
    shm_ip_handle = shm.create_shared_memory_region("input_data", "/input_simple_" + FLAGS.i, input_byte_size * 2)
    shm.set_shared_memory_region(shm_ip_handle, [input0_data])
    shm.set_shared_memory_region(shm_ip_handle, [input1_data], offset=input_byte_size)
    triton_client.register_system_shared_memory("input_data", "/input_simple_" + FLAGS.i, input_byte_size * 2)
    print(shm.mapped_shared_memory_regions())

    inputs = []
    inputs.append(client_lib.InferInput('INPUT0', [1, 16], "INT32"))
    inputs[-1].set_shared_memory("input_data", input_byte_size)
    inputs.append(client_lib.InferInput('INPUT1', [1, 16], "INT32"))
    inputs[-1].set_shared_memory("input_data", input_byte_size, offset=input_byte_size)
    outputs = []
    outputs.append(client_lib.InferRequestedOutput('OUTPUT0'))
    outputs[-1].set_shared_memory("output_data", output_byte_size)
    outputs.append(client_lib.InferRequestedOutput('OUTPUT1'))
    outputs[-1].set_shared_memory("output_data", output_byte_size, offset=output_byte_size)

    results = triton_client.infer(model_name=model_name, inputs=inputs, outputs=outputs)

    output0 = results.get_output('OUTPUT0')
    if output0 is None:
        print("OUTPUT0 is missing in the response.")
        sys.exit(1)
    datatype = output0['datatype'] if FLAGS.i == 'http' else output0.datatype
    shape = output0['shape'] if FLAGS.i == 'http' else output0.shape
    output0_data = shm.get_contents_as_numpy(shm_op_handle, utils.triton_to_np_dtype(datatype), shape)
    output1_data = shm.get_contents_as_numpy(shm_op_handle, np.int32, [1, 16], offset=output_byte_size)
    for i in range(16):
        print("%d + %d = %d" % (input0_data[i], input1_data[i], output0_data[0][i]))
        if output0_data[0][i] != input0_data[i] + input1_data[i] or output1_data[0][i] != input0_data[i] - input1_data[i]:
            print("shm infer error")
            sys.exit(1)

    # back to inline data with the same objects
    for o in outputs:
        o.unset_shared_memory()
    inputs[0].set_data_from_numpy(np.zeros([1, 16], np.int32))
    if (triton_client.infer(model_name, inputs, outputs=outputs).as_numpy('OUTPUT1') != -input1_data).any():
        sys.exit(1)

    status = triton_client.get_system_shared_memory_status()
    print(status)
    names = [r['name'] for r in status] if FLAGS.i == 'http' else list(status.regions)
    if sorted(names) != ["input_data", "output_data"]:
        sys.exit(1)
    # the program before me crashed...
    try:
        triton_client.register_system_shared_memory("input_data", "/input_simple_" + FLAGS.i, input_byte_size * 2)
        sys.exit(1)
    except utils.InferenceServerException as ex:
        print(ex)
        triton_client.unregister_system_shared_memory("input_data")
        triton_client.register_system_shared_memory("input_data", "/input_simple_" + FLAGS.i, input_byte_size * 2)
    print(triton_client.get_system_shared_memory_status("input_data"))

    # strings
    strs = np.array([str(x).encode() for x in range(16)], dtype=object)
    ser = utils.serialize_byte_tensor(strs)
    size = utils.serialized_byte_size(ser)
    s = shm.create_shared_memory_region("s", "/string_simple_" + FLAGS.i, size)
    shm.set_shared_memory_region(s, [ser])
    triton_client.register_system_shared_memory("s", "/string_simple_" + FLAGS.i, size)
    i0 = client_lib.InferInput('INPUT0', [1, 16], "BYTES")
    i0.set_shared_memory("s", size)
    back = triton_client.infer("simple_identity", [i0]).as_numpy("OUTPUT0")
    print(back)
    if back[0].tolist() != strs.tolist() or shm.get_contents_as_numpy(s, np.object_, [16]).tolist() != strs.tolist():
        sys.exit(1)

    triton_client.unregister_system_shared_memory()
    shm.destroy_shared_memory_region(s)
    shm.destroy_shared_memory_region(shm_ip_handle)
    shm.destroy_shared_memory_region(shm_op_handle)
    if shm.mapped_shared_memory_regions():
        sys.exit(1)
    print('PASS: system shared memory')
