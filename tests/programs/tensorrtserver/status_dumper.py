#!/usr/bin/env python
# Prints all that the server says about its models. A little monitoring script.
from __future__ import print_function, division
import argparse
from google.protobuf import json_format, text_format
from pytriton.compat.tensorrtserver.api import *
import pytriton.compat.tensorrtserver.api.server_status_pb2 as server_status_pb2
import pytriton.compat.tensorrtserver.api.model_config_pb2 as model_config
from pytriton.compat.tensorrtserver.api import api_pb2
from pytriton.compat.tensorrtserver.api import request_status_pb2

parser = argparse.ArgumentParser()
parser.add_argument('-u', '--url', default='localhost:8000')
parser.add_argument('-i', '--protocol', default='http')
parser.add_argument('-m', '--model', default='counted')
args = parser.parse_args()
protocol = ProtocolType.from_str(args.protocol)

ctx = InferContext(args.url, protocol, args.model, -1)
x = np.ones(4, np.float32)
for _ in range(3):
    ctx.run({'x': [x]}, {'y': InferContext.ResultFormat.RAW}, 1)
for _ in range(2):
    ctx.run({'x': [x, x]}, {'y': InferContext.ResultFormat.RAW}, 2)


def avg(stat):
    return stat.total_time_ns / stat.count / 1000.0 if stat.count else 0


def show(status):
    print("server", status.id, status.version, server_status_pb2.ServerReadyState.Name(status.ready_state))
    print("uptime", status.uptime_ns // 10**9)
    for kind in ("status_stats", "trace_control_stats", "health_stats", "model_control_stats", "shm_control_stats",
                 "repository_stats"):
        print(" ", kind, getattr(status, kind).success.count, getattr(status, kind).success.total_time_ns)
    for name, model in sorted(status.model_status.items()):
        if name != args.model:
            continue
        print("model", name, "max batch", model.config.max_batch_size, "platform", repr(model.config.platform))
        for t in list(model.config.input) + list(model.config.output):
            print("  tensor", t.name, model_config.DataType.Name(t.data_type), list(t.dims))
        for version, v in iteritems(model.version_status):
            print("  version", version, server_status_pb2.ModelReadyState.Name(v.ready_state))
            print("    reason", repr(v.ready_state_reason.message))
            print("    last", v.last_inference_timestamp_milliseconds > 1500000000000)
            print("    executions", v.model_execution_count, "inferences", v.model_inference_count)
            for batch_size in sorted(v.infer_stats):
                s = v.infer_stats[batch_size]
                print("    batch", batch_size, "success", s.success.count, "failed", s.failed.count,
                      "compute", s.compute.count, "queue", s.queue.count)
                if not avg(s.success) >= avg(s.compute) > 0:
                    print("that makes no sense", s)
                    sys.exit(1)


def counts(status):
    version = status.model_status[args.model].version_status[1]
    return sum(s.success.count for s in version.infer_stats.values())


import time
for i in range(200):
    status = ServerStatusContext(args.url, protocol, None).get_server_status()
    if counts(status) >= 5:
        break
    time.sleep(0.05)
show(status)

# other people log it
as_dict = json_format.MessageToDict(status, preserving_proto_field_name=True)
assert as_dict["ready_state"] == "SERVER_READY", as_dict
text = text_format.MessageToString(status)
again = server_status_pb2.ServerStatus()
text_format.Merge(text, again)
assert again == status
copied = ServerStatus()
copied.CopyFrom(status)
assert isinstance(copied, server_status_pb2.ServerStatus)

# and some people make the messages themselves
header = InferRequestHeader(id=7, batch_size=2, flags=InferRequestHeader.FLAG_SEQUENCE_START, correlation_id=2**64 - 1)
header.input.add(name="x", dims=[4], batch_byte_size=16)
out = header.output.add(name="y")
out.cls.count = 3
response = api_pb2.InferResponseHeader(model_name="m", model_version=1, batch_size=1)
raw = response.output.add(name="y")
raw.raw.dims.extend([4])
cls = raw.batch_classes.add().cls.add(idx=1, value=0.5, label="cat")
code = request_status_pb2.RequestStatus(code=request_status_pb2.SUCCESS, server_id="inference:0", request_id=9)
print("code", request_status_pb2.RequestStatusCode.Name(code.code), api_pb2.InferRequestHeader is InferRequestHeader)
stats = server_status_pb2.InferRequestStats(success=server_status_pb2.StatDuration(count=1, total_time_ns=2))
print(str(stats).replace("\n", " "))
index = ModelRepositoryContext(args.url, protocol).get_model_repository_index()
print("index", args.model in [m.name for m in index.models], type(index) is server_status_pb2.ModelRepositoryIndex)
print("PASS status")
