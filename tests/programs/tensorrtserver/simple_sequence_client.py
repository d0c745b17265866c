#!/usr/bin/env python
from __future__ import print_function
import argparse
import numpy as np
import sys
from functools import partial
from builtins import range
from pytriton.compat.tensorrtserver.api import *

if sys.version_info >= (3, 0):
    import queue
else:
    import Queue as queue

FLAGS = None


class UserData:
    def __init__(self):
        self._completed_requests = queue.Queue()


# Callback function used for async_run()
def completion_callback(user_data, infer_ctx, request_id):
    user_data._completed_requests.put((infer_ctx, request_id))


def async_send(ctx, user_data, control, corr_id, value, batch_size=1):
    value_data = np.full(shape=[1], fill_value=value, dtype=np.int32)
    ctx.async_run(partial(completion_callback, user_data),
                  { 'INPUT' : (value_data,) },
                  { 'OUTPUT' : InferContext.ResultFormat.RAW },
                  batch_size, control, corr_id)


def control_of(i, values):
    flags = InferRequestHeader.FLAG_NONE
    if i == 0:
        flags = flags | InferRequestHeader.FLAG_SEQUENCE_START
    if i == len(values) - 1:
        flags = flags | InferRequestHeader.FLAG_SEQUENCE_END
    return flags


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('-v', '--verbose', action="store_true", required=False, default=False)
    parser.add_argument('-u', '--url', type=str, required=False, default='localhost:8001')
    parser.add_argument('-r', '--reverse', action="store_true", required=False, default=False)
    parser.add_argument('-o', '--offset', type=int, required=False, default=0,
                        help='Add offset to sequence ID used')
    parser.add_argument('-1', '--one-context', dest='one', action="store_true", required=False, default=False,
                        help='Both sequences over one stream')
    FLAGS = parser.parse_args()

    # We use the custom "sequence" model which takes 1 input value. The output is the accumulated value.
    model_name = "simple_sequence"
    model_version = -1
    batch_size = 1

    # Use the same values for both sequences, but the second one's are negative
    values = [11, 7, 5, 3, 2, 0, 1]
    correlation_id0 = 1000 + FLAGS.offset * 2
    correlation_id1 = 1001 + FLAGS.offset * 2
    print("sequence ID " + str(correlation_id0) + ", " + str(correlation_id1))

    user_data = UserData()
    ctx0 = InferContext(FLAGS.url, ProtocolType.GRPC, model_name, model_version, FLAGS.verbose,
                        correlation_id0, True)
    ctx1 = ctx0 if FLAGS.one else InferContext(FLAGS.url, ProtocolType.GRPC, model_name, model_version,
                                               correlation_id=correlation_id1, verbose=FLAGS.verbose, streaming=True)

    # Now send the inference sequences, interleaved. The model has room for one of them at a time.
    for i in range(len(values)):
        async_send(ctx0, user_data, control_of(i, values), correlation_id0, values[i])
        async_send(ctx1, user_data, control_of(i, values), correlation_id1, -values[i])

    # Retrieve the results
    result0_list = []
    result1_list = []
    for _ in range(2 * len(values)):
        (infer_ctx, request_id) = user_data._completed_requests.get()
        results = infer_ctx.get_async_run_results(request_id)
        value = results['OUTPUT'][0][0]
        (result0_list if value > 0 else result1_list).append(value)

    seq0_expected = 0
    for i in range(len(values)):
        seq0_expected += values[i]
        print("[" + str(i) + "] " + str(result0_list[i]) + " : " + str(result1_list[i]))
        if (seq0_expected != result0_list[i]) or (-seq0_expected != result1_list[i]):
            print("[ expected ] " + str(seq0_expected) + " : " + str(-seq0_expected))
            sys.exit(1)

    print("PASS: Sequence")
