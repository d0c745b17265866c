import argparse, sys, time
import numpy as np
import tritonclient.grpc as grpcclient
from tritonclient.grpc import *
from tritonclient.grpc import MAX_GRPC_MESSAGE_SIZE, model_config_pb2

parser = argparse.ArgumentParser()
parser.add_argument('-u', '--url', default='localhost:8001')
parser.add_argument('--grpc-keepalive-time', type=int, default=2**31 - 1)
parser.add_argument('--grpc-keepalive-timeout', type=int, default=20000)
parser.add_argument('--grpc-keepalive-permit-without-calls', action="store_true", default=False)
parser.add_argument('--grpc-http2-max-pings-without-data', type=int, default=2)
FLAGS = parser.parse_args()

keepalive_options = grpcclient.KeepAliveOptions(
    keepalive_time_ms=FLAGS.grpc_keepalive_time, keepalive_timeout_ms=FLAGS.grpc_keepalive_timeout,
    keepalive_permit_without_calls=FLAGS.grpc_keepalive_permit_without_calls,
    http2_max_pings_without_data=FLAGS.grpc_http2_max_pings_without_data)
channel_args = [("grpc.primary_user_agent", "me"), ("grpc.max_send_message_length", MAX_GRPC_MESSAGE_SIZE),
                ("grpc.max_receive_message_length", MAX_GRPC_MESSAGE_SIZE)]

# keepalive as the 9th, positional; then channel args
clients = [InferenceServerClient(FLAGS.url, False, False, None, None, None, None, keepalive_options),
           InferenceServerClient(FLAGS.url, channel_args=channel_args)]
big = np.arange(8 * 1024 * 1024, dtype=np.uint8).tobytes()  # more than gRPC's 4 MB
for client in clients:
    i = InferInput("INPUT0", [1, 1], "BYTES")
    i.set_data_from_numpy(np.array([[big]], dtype=np.object_))
    out = client.infer("simple_identity", [i]).as_numpy("OUTPUT0")
    print(len(out[0][0]))
    if out[0][0] != big:
        sys.exit(1)
for client in clients:
    client.close()

# plain stubs and messages, like those who do without the library do
import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc
channel = grpc.insecure_channel(FLAGS.url)
stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
if not stub.ServerLive(service_pb2.ServerLiveRequest()).live:
    sys.exit(1)
request = service_pb2.ModelInferRequest()
request.model_name = "simple"
for name in "INPUT0", "INPUT1":
    tensor = service_pb2.ModelInferRequest().InferInputTensor()
    tensor.name, tensor.datatype = name, "INT32"
    tensor.shape.extend([1, 16])
    request.inputs.extend([tensor])
    request.raw_input_contents.extend([np.full(16, 3, np.int32).tobytes()])
response = stub.ModelInfer(request)
got = {o.name: np.frombuffer(c, np.int32) for o, c in zip(response.outputs, response.raw_output_contents)}
print(got)
if (got["OUTPUT0"] != 6).any() or (got["OUTPUT1"] != 0).any():
    sys.exit(1)
# typed contents instead of raw ones
del request.raw_input_contents[:]
for tensor in request.inputs:
    tensor.contents.int_contents[:] = range(16)
response = stub.ModelInfer(request)
if list(np.frombuffer(response.raw_output_contents[0], np.int32)) != list(range(0, 32, 2)):
    sys.exit(1)
config = stub.ModelConfig(service_pb2.ModelConfigRequest(name="simple"))
if config.config.input[0].data_type != model_config_pb2.TYPE_INT32:
    sys.exit(1)
print("PASS: custom args")
