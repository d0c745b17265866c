#!/usr/bin/env python
# sends two vectors to the "simple" model and checks sum and difference

import argparse
import sys

import numpy as np
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

FLAGS = None


def test_infer(model_name, input0_data, input1_data, headers=None,
               request_compression_algorithm=None, response_compression_algorithm=None):
    inputs = []
    outputs = []
    inputs.append(httpclient.InferInput('INPUT0', [1, 16], "INT32"))
    inputs.append(httpclient.InferInput('INPUT1', [1, 16], "INT32"))

    # one as JSON, one binary
    inputs[0].set_data_from_numpy(input0_data, binary_data=False)
    inputs[1].set_data_from_numpy(input1_data, binary_data=True)

    outputs.append(httpclient.InferRequestedOutput('OUTPUT0', binary_data=True))
    outputs.append(httpclient.InferRequestedOutput('OUTPUT1', binary_data=False))
    query_params = {'test_1': 1, 'test_2': 2}
    results = triton_client.infer(
        model_name, inputs, outputs=outputs, query_params=query_params, headers=headers,
        request_compression_algorithm=request_compression_algorithm,
        response_compression_algorithm=response_compression_algorithm)
    return results


def test_infer_no_outputs(model_name, input0_data, input1_data):
    inputs = [httpclient.InferInput('INPUT0', [1, 16], "INT32"), httpclient.InferInput('INPUT1', [1, 16], "INT32")]
    inputs[0].set_data_from_numpy(input0_data, False)
    inputs[1].set_data_from_numpy(input1_data)
    # everything by position: model, inputs, version, outputs, id
    return triton_client.infer(model_name, inputs, "", None, "my-id")


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('-v', '--verbose', action="store_true", default=False)
    parser.add_argument('-u', '--url', type=str, default='localhost:8000')
    parser.add_argument('-H', dest='http_headers', metavar="HTTP_HEADER", required=False, action='append')
    parser.add_argument('--request-compression-algorithm', type=str, default=None)
    parser.add_argument('--response-compression-algorithm', type=str, default=None)
    FLAGS = parser.parse_args()

    try:
        triton_client = httpclient.InferenceServerClient(url=FLAGS.url, verbose=FLAGS.verbose)
    except Exception as e:
        print("channel creation failed: " + str(e))
        sys.exit(1)

    model_name = "simple"
    input0_data = np.expand_dims(np.arange(start=0, stop=16, dtype=np.int32), axis=0)
    input1_data = np.full(shape=(1, 16), fill_value=-1, dtype=np.int32)

    if FLAGS.http_headers is not None:
        headers_dict = {l.split(':')[0]: l.split(':')[1] for l in FLAGS.http_headers}
    else:
        headers_dict = None

    results = test_infer(model_name, input0_data, input1_data, headers_dict,
                         FLAGS.request_compression_algorithm, FLAGS.response_compression_algorithm)
    print(results.get_response())

    statistics = triton_client.get_inference_statistics(model_name=model_name, headers=headers_dict)
    print(statistics)
    if len(statistics['model_stats']) != 1:
        print("FAILED: Inference Statistics")
        sys.exit(1)

    output0_data = results.as_numpy('OUTPUT0')
    output1_data = results.as_numpy('OUTPUT1')
    for i in range(16):
        print(str(input0_data[0][i]) + " + " + str(input1_data[0][i]) + " = " + str(output0_data[0][i]))
        print(str(input0_data[0][i]) + " - " + str(input1_data[0][i]) + " = " + str(output1_data[0][i]))
        if (input0_data[0][i] + input1_data[0][i]) != output0_data[0][i]:
            print("sync infer error: incorrect sum")
            sys.exit(1)
        if (input0_data[0][i] - input1_data[0][i]) != output1_data[0][i]:
            print("sync infer error: incorrect difference")
            sys.exit(1)

    results = test_infer_no_outputs(model_name, input0_data, input1_data)
    if results.get_response()['id'] != "my-id" or results.get_output('OUTPUT0')['shape'] != [1, 16]:
        sys.exit(1)
    if results.as_numpy('NO_SUCH_OUTPUT') is not None:
        sys.exit(1)
    if (results.as_numpy('OUTPUT0') != output0_data).any():
        sys.exit(1)

    # a model that is not there
    try:
        test_infer("wrong_model_name", input0_data, input1_data)
    except InferenceServerException as ex:
        print(ex)
        if not ex.message().startswith("Request for unknown model"):
            print("improper error message for wrong model name: ", ex.message())
            sys.exit(1)
    else:
        sys.exit(1)
    triton_client.close()
    print("PASS: infer")
