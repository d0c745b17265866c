#!/usr/bin/env python
# classifies pictures. model-neutral: reads what it needs from metadata and config
import argparse
import json
import queue
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import tritonclient.grpc as grpcclient
import tritonclient.grpc.model_config_pb2 as mc
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException, triton_to_np_dtype


class UserData:
    def __init__(self):
        self._completed_requests = queue.Queue()


def completion_callback(user_data, result, error):
    # passing error raise and handling out
    user_data._completed_requests.put((result, error))


FLAGS = None


def parse_model(model_metadata, model_config):
    """one image in, scores out, or I give up"""
    if len(model_metadata.inputs) != 1:
        raise Exception("expecting 1 input, got {}".format(len(model_metadata.inputs)))
    if len(model_metadata.outputs) != 1:
        raise Exception("expecting 1 output, got {}".format(len(model_metadata.outputs)))
    input_metadata = model_metadata.inputs[0]
    input_config = model_config.input[0]
    output_metadata = model_metadata.outputs[0]
    if output_metadata.datatype != "FP32":
        raise Exception("expecting output datatype to be FP32, model '" + model_metadata.name + "' output type is "
                        + output_metadata.datatype)
    # a vector; batch may be variable
    output_batch_dim = (model_config.max_batch_size > 0)
    non_one_cnt = 0
    for dim in output_metadata.shape:
        if output_batch_dim:
            output_batch_dim = False
        elif dim > 1:
            non_one_cnt += 1
            if non_one_cnt > 1:
                raise Exception("expecting model output to be a vector")
    input_batch_dim = (model_config.max_batch_size > 0)
    expected_input_dims = 3 + (1 if input_batch_dim else 0)
    if len(input_metadata.shape) != expected_input_dims:
        raise Exception("expecting input to have {} dimensions".format(expected_input_dims))
    if type(input_config.format) == str:
        FORMAT_ENUM_TO_INT = dict(mc.ModelInput.Format.items())
        input_config.format = FORMAT_ENUM_TO_INT[input_config.format]
    if (input_config.format != mc.ModelInput.FORMAT_NCHW) and (input_config.format != mc.ModelInput.FORMAT_NHWC):
        raise Exception("unexpected input format " + mc.ModelInput.Format.Name(input_config.format))
    if input_config.format == mc.ModelInput.FORMAT_NHWC:
        h, w, c = [input_metadata.shape[i] for i in ((1, 2, 3) if input_batch_dim else (0, 1, 2))]
    else:
        c, h, w = [input_metadata.shape[i] for i in ((1, 2, 3) if input_batch_dim else (0, 1, 2))]
    return (model_config.max_batch_size, input_metadata.name, output_metadata.name, c, h, w, input_config.format,
            input_metadata.datatype)


def preprocess(img, format, dtype, c, h, w):
    """no PIL, pictures are made up"""
    typed = np.full((h, w, c), img, dtype=triton_to_np_dtype(dtype))
    return typed if format == mc.ModelInput.FORMAT_NHWC else np.transpose(typed, (2, 0, 1))


def postprocess(results, output_name, batch_size, supports_batching):
    output_array = results.as_numpy(output_name)
    if supports_batching and len(output_array) != batch_size:
        raise Exception("expected {} results, got {}".format(batch_size, len(output_array)))
    for results in output_array:
        if not supports_batching:
            results = [results]
        for result in results:
            if output_array.dtype.type == np.object_:
                cls = "".join(chr(x) for x in result).split(':')
            else:
                cls = result.split(':')
            print("    {} ({}) = {}".format(cls[0], cls[1], cls[2]))


def requestGenerator(batched_image_data, input_name, output_name, dtype, FLAGS):
    client = grpcclient if FLAGS.protocol.lower() == "grpc" else httpclient
    inputs = [client.InferInput(input_name, batched_image_data.shape, dtype)]
    inputs[0].set_data_from_numpy(batched_image_data)
    outputs = [client.InferRequestedOutput(output_name, class_count=FLAGS.classes)]
    yield inputs, outputs, FLAGS.model_name, FLAGS.model_version


def to_object(d):
    """attribute access to JSON"""
    return json.loads(json.dumps(d), object_hook=lambda x: SimpleNamespace(**x))


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('-v', '--verbose', action="store_true", default=False)
    parser.add_argument('-a', '--async', dest="async_set", action="store_true", default=False)
    parser.add_argument('--streaming', action="store_true", default=False)
    parser.add_argument('-m', '--model-name', type=str, required=True)
    parser.add_argument('-x', '--model-version', type=str, default="")
    parser.add_argument('-b', '--batch-size', type=int, default=1)
    parser.add_argument('-c', '--classes', type=int, default=1)
    parser.add_argument('-u', '--url', type=str, default='localhost:8000')
    parser.add_argument('-i', '--protocol', type=str, default='HTTP')
    parser.add_argument('images', type=float, nargs='+')
    FLAGS = parser.parse_args()

    if FLAGS.streaming and FLAGS.protocol.lower() != "grpc":
        raise Exception("Streaming is only allowed with gRPC protocol")
    try:
        if FLAGS.protocol.lower() == "grpc":
            triton_client = grpcclient.InferenceServerClient(url=FLAGS.url, verbose=FLAGS.verbose)
        else:
            triton_client = httpclient.InferenceServerClient(
                url=FLAGS.url, verbose=FLAGS.verbose, concurrency=20 if FLAGS.async_set else 1)
    except Exception as e:
        print("client creation failed: " + str(e))
        sys.exit(1)
    try:
        model_metadata = triton_client.get_model_metadata(model_name=FLAGS.model_name, model_version=FLAGS.model_version)
        model_config = triton_client.get_model_config(model_name=FLAGS.model_name, model_version=FLAGS.model_version)
    except InferenceServerException as e:
        print("failed to retrieve the metadata: " + str(e))
        sys.exit(1)
    if FLAGS.protocol.lower() == "grpc":
        model_config = model_config.config
    else:
        model_metadata, model_config = to_object(model_metadata), to_object(model_config)

    max_batch_size, input_name, output_name, c, h, w, format, dtype = parse_model(model_metadata, model_config)
    supports_batching = max_batch_size > 0
    if not supports_batching and FLAGS.batch_size != 1:
        print("ERROR: This model doesn't support batching.")
        sys.exit(1)
    image_data = [preprocess(img, format, dtype, c, h, w) for img in FLAGS.images]

    requests, responses, result_filenames = [], [], []
    image_idx, last_request, sent_count = 0, False, 0
    async_requests = []
    user_data = UserData()
    if FLAGS.streaming:
        triton_client.start_stream(partial(completion_callback, user_data))
    while not last_request:
        input_filenames, repeated_image_data = [], []
        for idx in range(FLAGS.batch_size):
            input_filenames.append(FLAGS.images[image_idx])
            repeated_image_data.append(image_data[image_idx])
            image_idx = (image_idx + 1) % len(image_data)
            if image_idx == 0:
                last_request = True
        batched = np.stack(repeated_image_data, axis=0) if supports_batching else repeated_image_data[0]
        try:
            for inputs, outputs, model_name, model_version in requestGenerator(batched, input_name, output_name, dtype, FLAGS):
                sent_count += 1
                if FLAGS.streaming:
                    triton_client.async_stream_infer(FLAGS.model_name, inputs, request_id=str(sent_count),
                                                     model_version=FLAGS.model_version, outputs=outputs)
                elif FLAGS.async_set and FLAGS.protocol.lower() == "grpc":
                    triton_client.async_infer(FLAGS.model_name, inputs, partial(completion_callback, user_data),
                                              request_id=str(sent_count), model_version=FLAGS.model_version, outputs=outputs)
                elif FLAGS.async_set:
                    async_requests.append(triton_client.async_infer(FLAGS.model_name, inputs, request_id=str(sent_count),
                                                                    model_version=FLAGS.model_version, outputs=outputs))
                else:
                    responses.append(triton_client.infer(FLAGS.model_name, inputs, request_id=str(sent_count),
                                                         model_version=FLAGS.model_version, outputs=outputs))
        except InferenceServerException as e:
            print("inference failed: " + str(e))
            if FLAGS.streaming:
                triton_client.stop_stream()
            sys.exit(1)
    if FLAGS.streaming:
        triton_client.stop_stream()
    if FLAGS.protocol.lower() == "grpc" and (FLAGS.streaming or FLAGS.async_set):
        processed_count = 0
        while processed_count < sent_count:
            (results, error) = user_data._completed_requests.get(timeout=60)
            processed_count += 1
            if error is not None:
                print("inference failed: " + str(error))
                sys.exit(1)
            responses.append(results)
    elif FLAGS.async_set:
        for async_request in async_requests:
            responses.append(async_request.get_result())

    for response in responses:
        this_id = response.get_response().id if FLAGS.protocol.lower() == "grpc" else response.get_response()["id"]
        print("Request {}, batch size {}".format(this_id, FLAGS.batch_size))
        postprocess(response, output_name, FLAGS.batch_size, supports_batching)
    print("PASS")
