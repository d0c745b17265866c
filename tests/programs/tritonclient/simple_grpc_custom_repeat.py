#!/usr/bin/env python
from functools import partial
import argparse
import queue
import sys
import numpy as np
import tritonclient.grpc as grpcclient
from tritonclient.utils import *


class UserData:
    def __init__(self):
        self._completed_requests = queue.Queue()


def callback(user_data, result, error):
    user_data._completed_requests.put(error if error else result)
    if user_data.nasty:
        raise ValueError("a callback that raises")


def inputs_for(values, delays, wait):
    inputs = []
    inputs.append(grpcclient.InferInput("IN", [len(values)], "INT32"))
    inputs[-1].set_data_from_numpy(np.array(values, dtype=np.int32))
    inputs.append(grpcclient.InferInput("DELAY", [len(values)], "UINT32"))
    inputs[-1].set_data_from_numpy(np.array(delays, dtype=np.uint32))
    inputs.append(grpcclient.InferInput("WAIT", [1], "UINT32"))
    inputs[-1].set_data_from_numpy(np.array([wait], dtype=np.uint32))
    return inputs


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('-u', '--url', type=str, default='localhost:8001')
    parser.add_argument('-r', '--repeat-count', type=int, default=10)
    parser.add_argument('-d', '--delay-time', type=int, default=1, help="ms between two responses")
    FLAGS = parser.parse_args()
    model_name = "repeat_int32"
    user_data = UserData()
    user_data.nasty = False
    values = list(range(FLAGS.repeat_count))

    with grpcclient.InferenceServerClient(FLAGS.url) as triton_client:
        triton_client.start_stream(partial(callback, user_data))
        for request in range(3):
            triton_client.async_stream_infer(model_name, inputs_for(values, [FLAGS.delay_time] * len(values), 0),
                                             request_id=str(request), enable_empty_final_response=True,
                                             outputs=[grpcclient.InferRequestedOutput('OUT'), grpcclient.InferRequestedOutput('IDX')])
        finals, per_request = 0, {"0": [], "1": [], "2": []}
        while finals < 3:
            item = user_data._completed_requests.get(timeout=30)
            if type(item) == InferenceServerException:
                print(item)
                sys.exit(1)
            response = item.get_response()
            if response.parameters.get("triton_final_response").bool_param:
                finals += 1
            if item.as_numpy('OUT') is not None:
                per_request[response.id].append(int(item.as_numpy('OUT')[0]))
        print(per_request)
        if per_request != {"0": values, "1": values, "2": values}:
            sys.exit(1)

        # no responses at all
        triton_client.async_stream_infer(model_name, inputs_for([], [], 0), enable_empty_final_response=True)
        if user_data._completed_requests.get(timeout=30).as_numpy('OUT') is not None:
            sys.exit(1)
        triton_client.async_stream_infer(model_name, inputs_for([42], [0], 0))
        if user_data._completed_requests.get(timeout=30).as_numpy('OUT')[0] != 42:
            sys.exit(1)
        # stop in the middle of a long one
        triton_client.async_stream_infer(model_name, inputs_for([1] * 1000, [100] * 1000, 0))
        user_data._completed_requests.get(timeout=30)
        triton_client.stop_stream(cancel_requests=True)
        # not with plain infer
        try:
            triton_client.infer(model_name, inputs_for([1], [0], 0))
            sys.exit(1)
        except InferenceServerException as e:
            print(e.status(), e.message()[:70])
        try:
            triton_client.async_stream_infer(model_name, inputs_for([1], [0], 0))
            sys.exit(1)
        except InferenceServerException as e:
            print("no stream:", e)

    # an error comes in the callback too, and what the callback raises hurts nobody
    user_data.nasty = True
    with grpcclient.InferenceServerClient(FLAGS.url) as triton_client:
        triton_client.start_stream(partial(callback, user_data))
        triton_client.async_stream_infer("nobody_home", inputs_for([1], [0], 0))
        while True:
            error = user_data._completed_requests.get(timeout=30)
            if type(error) == InferenceServerException and "unknown model" in error.message():
                break
        print(type(error).__name__, error.message())

    # a deadline for the stream
    late = UserData()
    late.nasty = False
    client = grpcclient.InferenceServerClient(FLAGS.url)
    client.start_stream(partial(callback, late), stream_timeout=0.3)
    client.async_stream_infer(model_name, inputs_for([1, 2], [10000, 10000], 0))
    print(late._completed_requests.get(timeout=30).status())
    client.stop_stream()
    client.close()
    print("PASS: repeat_int32")
