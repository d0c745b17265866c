import argparse, sys
import numpy as np
import tritonclient.http as httpclient
from tritonclient.utils import *

parser = argparse.ArgumentParser()
parser.add_argument('-u', '--url', default='localhost:8000')
FLAGS = parser.parse_args()

request_count = 12
try:
    # concurrency = how many connections
    triton_client = httpclient.InferenceServerClient(FLAGS.url, False, request_count)
except Exception as e:
    print("context creation failed: " + str(e))
    sys.exit()

model_name = 'simple'
async_requests = []
for i in range(request_count):
    input0_data = np.arange(start=i, stop=i + 16, dtype=np.int32).reshape(1, 16)
    input1_data = np.ones((1, 16), dtype=np.int32)
    inputs = [httpclient.InferInput('INPUT0', [1, 16], np_to_triton_dtype(input0_data.dtype)),
              httpclient.InferInput('INPUT1', [1, 16], np_to_triton_dtype(input1_data.dtype))]
    inputs[0].set_data_from_numpy(input0_data)
    inputs[1].set_data_from_numpy(input1_data)
    async_requests.append(triton_client.async_infer(model_name=model_name, inputs=inputs, request_id=str(i)))
    assert isinstance(async_requests[-1], httpclient.InferAsyncRequest)

for i, async_request in enumerate(async_requests):
    result = async_request.get_result()
    assert isinstance(result, httpclient.InferResult)
    print(result.get_response()["id"], result.as_numpy('OUTPUT0')[0][:3])
    if (result.as_numpy('OUTPUT0')[0] != np.arange(i + 1, i + 17)).any():
        print("async infer error: incorrect sum"); sys.exit(1)
    if (result.as_numpy('OUTPUT1')[0] != np.arange(i - 1, i + 15)).any():
        print("async infer error: incorrect difference"); sys.exit(1)

# one that is too slow, and one that the server does not like
slow = httpclient.InferInput('INPUT', [1], 'FP32')
slow.set_data_from_numpy(np.array([1.0], np.float32))
pending = triton_client.async_infer('slow', [slow])
try:
    pending.get_result(timeout=0.05)
    print("should have timed out"); sys.exit(1)
except InferenceServerException as e:
    print("timed out:", e)
try:
    triton_client.async_infer(model_name, inputs[:1]).get_result(block=True)
except InferenceServerException as e:
    print("refused:", e.status(), e.message()[:60])
else:
    sys.exit(1)
print("PASS: async infer")
