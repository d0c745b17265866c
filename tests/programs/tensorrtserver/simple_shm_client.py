#!/usr/bin/env python
import argparse
import numpy as np
import os
from builtins import range
from ctypes import *
from pytriton.compat.tensorrtserver.api import *
import pytriton.compat.tensorrtserver.shared_memory as shm

FLAGS = None

if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('-v', '--verbose', action="store_true", required=False, default=False)
    parser.add_argument('-u', '--url', type=str, required=False, default='localhost:8000')
    parser.add_argument('-i', '--protocol', type=str, required=False, default='http')
    parser.add_argument('-H', dest='http_headers', metavar="HTTP_HEADER", required=False, action='append')
    parser.add_argument('-s', '--streaming', action="store_true", required=False, default=False)
    FLAGS = parser.parse_args()
    protocol = ProtocolType.from_str(FLAGS.protocol)

    model_name = "simple"
    model_version = -1
    batch_size = 1

    # Create the inference context for the model.
    infer_ctx = InferContext(FLAGS.url, protocol, model_name, model_version,
                             http_headers=FLAGS.http_headers, verbose=FLAGS.verbose, streaming=FLAGS.streaming)

    # Create the shared memory control context. To make sure no shared memory regions are registered with the server.
    shared_memory_ctx = SharedMemoryControlContext(FLAGS.url, protocol,
                                                   http_headers=FLAGS.http_headers, verbose=FLAGS.verbose)
    shared_memory_ctx.unregister_all()

    input0_data = np.arange(start=0, stop=16, dtype=np.int32)
    input1_data = np.ones(shape=16, dtype=np.int32)
    input_byte_size = input0_data.size * input0_data.itemsize
    output_byte_size = input_byte_size
    pid = str(os.getpid())

    # Create Output0 and Output1 in Shared Memory and store shared memory handles
    shm_op0_handle = shm.create_shared_memory_region("output0_data", "/output0_simple" + pid, output_byte_size)
    shm_op1_handle = shm.create_shared_memory_region("output1_data", "/output1_simple" + pid, output_byte_size)
    shared_memory_ctx.register(shm_op0_handle)
    shared_memory_ctx.register(shm_op1_handle)

    # Create Input0 and Input1 in Shared Memory and store shared memory handles
    shm_ip0_handle = shm.create_shared_memory_region("input0_data", "/input0_simple" + pid, input_byte_size)
    shm_ip1_handle = shm.create_shared_memory_region("input1_data", "/input1_simple" + pid, input_byte_size)
    shm.set_shared_memory_region(shm_ip0_handle, [input0_data])
    shm.set_shared_memory_region(shm_ip1_handle, [input1_data])
    shared_memory_ctx.register(shm_ip0_handle)
    shared_memory_ctx.register(shm_ip1_handle)

    results = infer_ctx.run({ 'INPUT0' : shm_ip0_handle, 'INPUT1' : shm_ip1_handle, },
                            { 'OUTPUT0' : (InferContext.ResultFormat.RAW, shm_op0_handle),
                              'OUTPUT1' : (InferContext.ResultFormat.RAW, shm_op1_handle) },
                            batch_size)

    # Read output from shared memory
    output0_data = results['OUTPUT0'][0]
    output1_data = results['OUTPUT1'][0]
    for i in range(16):
        print(str(input0_data[i]) + " + " + str(input1_data[i]) + " = " + str(output0_data[i]))
        if (input0_data[i] + input1_data[i]) != output0_data[i]:
            print("error: incorrect sum")
            sys.exit(1)
        if (input0_data[i] - input1_data[i]) != output1_data[i]:
            print("error: incorrect difference")
            sys.exit(1)

    status = shared_memory_ctx.get_shared_memory_status()
    print(status)
    names = sorted(r.name for r in status.shared_memory_region)
    if names != ["input0_data", "input1_data", "output0_data", "output1_data"]:
        sys.exit(1)
    shared_memory_ctx.unregister_all()
    assert len(shared_memory_ctx.get_shared_memory_status().shared_memory_region) == 0
    shm.destroy_shared_memory_region(shm_ip0_handle)
    shm.destroy_shared_memory_region(shm_ip1_handle)
    shm.destroy_shared_memory_region(shm_op0_handle)
    shm.destroy_shared_memory_region(shm_op1_handle)
    print('PASS: shm')
