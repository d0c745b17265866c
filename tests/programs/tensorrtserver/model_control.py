#!/usr/bin/env python
import argparse
import time
from pytriton.compat.tensorrtserver.api import *

if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('-u', '--url', type=str, default='localhost:8000')
    parser.add_argument('-i', '--protocol', type=str, default='http')
    FLAGS = parser.parse_args()
    protocol = ProtocolType.from_str(FLAGS.protocol)
    model_name = "controlled"

    model_control_ctx = ModelControlContext(FLAGS.url, protocol)
    status_ctx = ServerStatusContext(FLAGS.url, protocol, model_name)

    def has_state(state):
        versions = status_ctx.get_server_status().model_status[model_name].version_status
        for version, v in versions.items():
            if v.ready_state == state:
                return True
        return False

    def infer():
        with InferContext(FLAGS.url, protocol, model_name, -1) as ctx:
            return ctx.run({'x': [np.array([1.5], np.float32)]}, {'y': InferContext.ResultFormat.RAW})['y'][0][0]

    def until(condition):
        for i in range(300):
            if condition():
                return
            time.sleep(0.05)
        print("never happened")
        sys.exit(1)

    model_control_ctx.load(model_name)
    print("loaded:", infer())
    model_control_ctx.unload(model_name)
    until(lambda: has_state(server_status_pb2.MODEL_UNAVAILABLE))
    try:
        infer()
        print("error: an unloaded model answered")
        sys.exit(1)
    except InferenceServerException as e:
        print("refused:", model_name in e.message())
    v = status_ctx.get_server_status().model_status[model_name].version_status
    for version in v:
        print("reason:", v[version].ready_state_reason.message)
    model_control_ctx.load(model_name)
    until(lambda: has_state(server_status_pb2.MODEL_READY))
    print("again:", infer())
    try:
        model_control_ctx.load("no_such_model")
        sys.exit(1)
    except InferenceServerException as e:
        print("unknown:", "no_such_model" in str(e), e.request_id() > 0)
    if model_control_ctx.get_last_request_id() is not None:
        sys.exit(1)
    names = [m.name for m in ModelRepositoryContext(FLAGS.url, protocol).get_model_repository_index().models]
    print("listed:", names.count(model_name))
    print("PASS model_control")
