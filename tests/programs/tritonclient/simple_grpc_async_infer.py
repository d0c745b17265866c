from functools import partial
import argparse
import numpy as np
import queue
import sys
import time

import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException


def callback(user_data, result, error):
    if error:
        user_data.append(error)
    else:
        user_data.append(result)


def bad_callback(user_data, result, error):
    user_data.put((result, error))
    raise RuntimeError("oops, a bug in my callback")


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('-v', '--verbose', action="store_true", default=False)
    parser.add_argument('-u', '--url', type=str, default='localhost:8001')
    FLAGS = parser.parse_args()
    try:
        triton_client = grpcclient.InferenceServerClient(url=FLAGS.url, verbose=FLAGS.verbose)
    except Exception as e:
        print("context creation failed: " + str(e))
        sys.exit()

    model_name = 'simple'
    inputs = [grpcclient.InferInput('INPUT0', [1, 16], "INT32"), grpcclient.InferInput('INPUT1', [1, 16], "INT32")]
    input0_data = np.expand_dims(np.arange(16, dtype=np.int32), axis=0)
    input1_data = np.ones(shape=(1, 16), dtype=np.int32)
    inputs[0].set_data_from_numpy(input0_data)
    inputs[1].set_data_from_numpy(input1_data)
    outputs = [grpcclient.InferRequestedOutput('OUTPUT0'), grpcclient.InferRequestedOutput('OUTPUT1')]

    user_data = []
    triton_client.async_infer(model_name=model_name, inputs=inputs, callback=partial(callback, user_data), outputs=outputs)

    # wait for it, as long as 10 seconds
    time_out = 100
    while len(user_data) == 0 and time_out > 0:
        time_out = time_out - 1
        time.sleep(0.1)
    if len(user_data) != 1 or type(user_data[0]) == InferenceServerException:
        print(user_data)
        sys.exit(1)
    print(user_data[0].as_numpy('OUTPUT0'))
    if (user_data[0].as_numpy('OUTPUT0') != input0_data + input1_data).any():
        print("async infer error: incorrect sum")
        sys.exit(1)

    # many at a time, callbacks raise and nobody should care
    got = queue.Queue()
    for i in range(20):
        try:
            triton_client.async_infer(model_name, inputs, partial(bad_callback, got), "", outputs, str(i))
        except:
            pass  # my callback, called at once
    ids = set()
    for i in range(20):
        result, error = got.get(timeout=30)
        assert error is None
        ids.add(int(result.get_response().id))
    if ids != set(range(20)):
        sys.exit(1)

    # the error comes in the callback
    try:
        triton_client.async_infer("no_such_model", inputs, partial(bad_callback, got))
    except:
        pass
    result, error = got.get(timeout=30)
    print(type(error).__name__, error.status())
    if result is not None:
        sys.exit(1)

    # cancel a slow one
    slow = grpcclient.InferInput('INPUT', [1], 'FP32')
    slow.set_data_from_numpy(np.array([2.0], np.float32))
    call = triton_client.async_infer('slow', [slow], lambda result, error: got.put((result, error)))
    call.cancel()
    result, error = got.get(timeout=30)
    print(error.status(), error.message())

    # and one that nobody waits for
    try:
        triton_client.infer('slow', [slow], client_timeout=0.1)
        sys.exit(1)
    except InferenceServerException as ex:
        if "Deadline Exceeded" not in ex.message():
            raise
    triton_client.close()
    print("PASS: Async infer")
