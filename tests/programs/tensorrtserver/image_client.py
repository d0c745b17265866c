#!/usr/bin/env python
import argparse
import numpy as np
import os
import time
from builtins import range
from functools import partial
from PIL import Image
from pytriton.compat.tensorrtserver.api import *
import pytriton.compat.tensorrtserver.api.model_config_pb2 as model_config
import pytriton.compat.tensorrtserver.api.server_status_pb2 as server_status

FLAGS = None


class UserData:
    def __init__(self):
        self._completed_requests = queue.Queue()


def completion_callback(input_filenames, user_data, infer_ctx, request_id):
    user_data._completed_requests.put((request_id, input_filenames))


def model_dtype_to_np(model_dtype):
    if model_dtype == model_config.TYPE_INT8:
        return np.int8
    elif model_dtype == model_config.TYPE_UINT8:
        return np.uint8
    elif model_dtype == model_config.TYPE_FP16:
        return np.float16
    elif model_dtype == model_config.TYPE_FP32:
        return np.float32
    elif model_dtype == model_config.TYPE_STRING:
        return np.dtype(object)
    return None


def parse_model(url, protocol, model_name, batch_size, verbose=False):
    """
    Check the configuration of a model to make sure it meets the
    requirements for an image classification network (as expected by
    this client)
    """
    ctx = ServerStatusContext(url, protocol, model_name, verbose)
    # wait until it is there
    for _ in range(100):
        status_of_server = ctx.get_server_status()
        states = [v.ready_state for v in status_of_server.model_status[model_name].version_status.values()]
        if server_status.MODEL_READY in states:
            break
        time.sleep(0.1)
    else:
        raise Exception("model '" + model_name + "' never got ready")

    if model_name not in status_of_server.model_status:
        raise Exception("unable to get status for '" + model_name + "'")

    status = status_of_server.model_status[model_name]
    config = status.config

    if len(config.input) != 1:
        raise Exception("expecting 1 input, got {}".format(len(config.input)))
    if len(config.output) != 1:
        raise Exception("expecting 1 output, got {}".format(len(config.output)))

    input = config.input[0]
    output = config.output[0]

    if output.data_type != model_config.TYPE_FP32:
        raise Exception("expecting output datatype to be TYPE_FP32, model '" +
                        model_name + "' output type is " +
                        model_config.DataType.Name(output.data_type))

    # Output is expected to be a vector.
    non_one_cnt = 0
    for dim in output.dims:
        if dim == -1:
            raise Exception("variable-size dimension in model output not supported")
        if dim > 1:
            non_one_cnt += 1
            if non_one_cnt > 1:
                raise Exception("expecting model output to be a vector")

    # Model specifying maximum batch size of 0 indicates that batching is not supported
    max_batch_size = config.max_batch_size
    if max_batch_size == 0:
        if batch_size != 1:
            raise Exception("batching not supported for model '" + model_name + "'")
    elif batch_size > max_batch_size:
        raise Exception("expecting batch size <= {} for model {}".format(max_batch_size, model_name))

    # Model input must have 3 dims, either CHW or HWC
    if len(input.dims) != 3:
        raise Exception("expecting input to have 3 dimensions, got {}".format(len(input.dims)))
    if ((input.format != model_config.ModelInput.FORMAT_NCHW) and
            (input.format != model_config.ModelInput.FORMAT_NHWC)):
        raise Exception("unexpected input format " + model_config.ModelInput.Format.Name(input.format) +
                        ", expecting " + model_config.ModelInput.Format.Name(model_config.ModelInput.FORMAT_NCHW) +
                        " or " + model_config.ModelInput.Format.Name(model_config.ModelInput.FORMAT_NHWC))

    if input.format == model_config.ModelInput.FORMAT_NHWC:
        h, w, c = input.dims
    else:
        c, h, w = input.dims
    return (input.name, output.name, c, h, w, input.format, model_dtype_to_np(input.data_type))


def preprocess(img, format, dtype, c, h, w):
    sample_img = img.convert('L' if c == 1 else 'RGB')
    resized_img = sample_img.resize((w, h), Image.BILINEAR)
    resized = np.array(resized_img)
    if resized.ndim == 2:
        resized = resized[:, :, np.newaxis]
    typed = resized.astype(dtype)
    if FLAGS.scaling == 'INCEPTION':
        typed = (typed / 128) - 1
    # Swap to CHW if necessary
    if format == model_config.ModelInput.FORMAT_NCHW:
        return np.transpose(typed, (2, 0, 1))
    return typed


def postprocess(results, filenames, batch_size):
    if len(results) != 1:
        raise Exception("expected 1 result, got {}".format(len(results)))
    batched_result = list(results.values())[0]
    if len(batched_result) != batch_size:
        raise Exception("expected {} results, got {}".format(batch_size, len(batched_result)))
    for (index, result) in enumerate(batched_result):
        print("Image '{}':".format(os.path.basename(filenames[index])))
        for cls in result:
            print("    {} ({}) = {}".format(cls[0], cls[2], cls[1]))


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('-v', '--verbose', action="store_true", required=False, default=False)
    parser.add_argument('-a', '--async', dest="async_set", action="store_true", required=False, default=False)
    parser.add_argument('--streaming', action="store_true", required=False, default=False)
    parser.add_argument('-m', '--model-name', type=str, required=True)
    parser.add_argument('-x', '--model-version', type=int, required=False, default=None)
    parser.add_argument('-b', '--batch-size', type=int, required=False, default=1)
    parser.add_argument('-c', '--classes', type=int, required=False, default=1)
    parser.add_argument('-s', '--scaling', type=str, choices=['NONE', 'INCEPTION'], required=False, default='NONE')
    parser.add_argument('-u', '--url', type=str, required=False, default='localhost:8000')
    parser.add_argument('-i', '--protocol', type=str, required=False, default='HTTP')
    parser.add_argument('image_filename', type=str, nargs='?', default=None)
    FLAGS = parser.parse_args()

    protocol = ProtocolType.from_str(FLAGS.protocol)
    if FLAGS.streaming and protocol != ProtocolType.GRPC:
        raise Exception("Streaming is only allowed with gRPC protocol")

    input_name, output_name, c, h, w, format, dtype = parse_model(
        FLAGS.url, protocol, FLAGS.model_name, FLAGS.batch_size, FLAGS.verbose)

    ctx = InferContext(FLAGS.url, protocol, FLAGS.model_name, FLAGS.model_version, FLAGS.verbose, 0, FLAGS.streaming)

    filenames = []
    if os.path.isdir(FLAGS.image_filename):
        filenames = [os.path.join(FLAGS.image_filename, f)
                     for f in os.listdir(FLAGS.image_filename)
                     if os.path.isfile(os.path.join(FLAGS.image_filename, f))]
    else:
        filenames = [FLAGS.image_filename, ]
    filenames.sort()

    # Preprocess the images into input data according to model requirements
    image_data = []
    for filename in filenames:
        img = Image.open(filename)
        image_data.append(preprocess(img, format, dtype, c, h, w))

    # Send requests of FLAGS.batch_size images. If the number of images isn't an exact multiple of
    # FLAGS.batch_size then just start over with the first images until the batch is filled.
    results = []
    result_filenames = []
    image_idx = 0
    last_request = False
    sent_count = 0
    user_data = UserData()
    while not last_request:
        input_filenames = []
        input_batch = []
        for idx in range(FLAGS.batch_size):
            input_filenames.append(filenames[image_idx])
            input_batch.append(image_data[image_idx])
            image_idx = (image_idx + 1) % len(image_data)
            if image_idx == 0:
                last_request = True

        if not FLAGS.async_set:
            results.append(ctx.run(
                { input_name : input_batch },
                { output_name : (InferContext.ResultFormat.CLASS, FLAGS.classes) },
                FLAGS.batch_size))
            result_filenames.append(input_filenames)
        else:
            ctx.async_run(partial(completion_callback, input_filenames, user_data),
                          { input_name : input_batch },
                          { output_name : (InferContext.ResultFormat.CLASS, np.int64(FLAGS.classes)) },
                          FLAGS.batch_size)
            sent_count += 1

    # For async, retrieve results according to the send order
    for _ in range(sent_count):
        request_id, input_filenames = user_data._completed_requests.get()
        results.append(ctx.get_async_run_results(request_id))
        result_filenames.append(input_filenames)

    for idx in range(len(results)):
        print("Request {}, batch size {}".format(idx, FLAGS.batch_size))
        postprocess(results[idx], result_filenames[idx], FLAGS.batch_size)
