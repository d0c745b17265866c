from functools import partial
import argparse
import numpy as np
import queue
import sys

import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

FLAGS = None


class UserData:
    def __init__(self):
        self._completed_requests = queue.Queue()


def callback(user_data, result, error):
    if error:
        user_data._completed_requests.put(error)
    else:
        user_data._completed_requests.put(result)


def async_stream_send(triton_client, values, batch_size, sequence_id, model_name, model_version):
    count = 1
    for value in values:
        value_data = np.full(shape=[batch_size, 1], fill_value=value, dtype=np.int32)
        inputs = []
        inputs.append(grpcclient.InferInput('INPUT', value_data.shape, "INT32"))
        inputs[0].set_data_from_numpy(value_data)
        outputs = []
        outputs.append(grpcclient.InferRequestedOutput('OUTPUT'))
        triton_client.async_stream_infer(model_name=model_name, inputs=inputs, outputs=outputs,
                                         request_id='{}_{}'.format(sequence_id, count), sequence_id=sequence_id,
                                         sequence_start=(count == 1), sequence_end=(count == len(values)))
        count = count + 1


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('-v', '--verbose', action="store_true", default=False)
    parser.add_argument('-u', '--url', type=str, default='localhost:8001')
    parser.add_argument('-t', '--stream-timeout', type=float, default=None)
    parser.add_argument('-o', '--offset', type=int, default=0)
    FLAGS = parser.parse_args()

    model_name = "simple_sequence"
    values = [11, 7, 5, 3, 2, 0, 1]

    # will use two sequences, one with a number and one with a name
    sequence_id0 = 1000 + FLAGS.offset * 2
    sequence_id1 = "sequence-" + str(1001 + FLAGS.offset * 2)

    result0_list = []
    result1_list = []
    user_data = UserData()

    # It is advisable to use client object within with..as clause
    with grpcclient.InferenceServerClient(FLAGS.url, FLAGS.verbose) as triton_client:
        try:
            triton_client.start_stream(callback=partial(callback, user_data), stream_timeout=FLAGS.stream_timeout)
            async_stream_send(triton_client, [0] + values, 1, sequence_id0, model_name, "")
            async_stream_send(triton_client, [100] + [-1 * val for val in values], 1, sequence_id1, model_name, "")
        except InferenceServerException as error:
            print(error)
            sys.exit(1)
        try:
            triton_client.start_stream(callback)  # there is one already
            sys.exit(1)
        except InferenceServerException as error:
            print("as expected:", error)

    # leaving the block stops the stream when all have come
    recv_count = 0
    while recv_count < (2 * (len(values) + 1)):
        data_item = user_data._completed_requests.get(timeout=30)
        if type(data_item) == InferenceServerException:
            print(data_item)
            sys.exit(1)
        try:
            this_id = data_item.get_response().id.split('_')[0]
            if int(this_id) == sequence_id0:
                result0_list.append(data_item.as_numpy('OUTPUT'))
        except ValueError:
            result1_list.append(data_item.as_numpy('OUTPUT'))
        recv_count = recv_count + 1

    for i in range(len(result0_list)):
        seq0_expected = 0 if i == 0 else sum(values[:i])
        seq1_expected = 100 if i == 0 else 100 - sum(values[:i])
        print("[" + str(i) + "] " + str(result0_list[i][0][0]) + " : " + str(result1_list[i][0][0]))
        if seq0_expected != result0_list[i][0][0] or seq1_expected != result1_list[i][0][0]:
            print("[ expected ] " + str(seq0_expected) + " : " + str(seq1_expected))
            sys.exit(1)
    print("PASS: Sequence")
