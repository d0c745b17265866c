# prints: no such model: BERT-large
# prints: timeout is a timeout
# prints: did you mean: True
# prints: [[3. 5.]]
"""Somebody deployed the model as "bert-large" and the client was copied from another project."""
import argparse
import logging
import socket
import sys

import numpy as np

from pytriton.client import ModelClient
from pytriton.client.exceptions import PyTritonClientModelUnavailableError, PyTritonClientTimeoutError
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig, TritonSecurityConfig

logging.basicConfig(level=logging.ERROR)

def get_free_port():
    s = socket.socket(); s.bind(("", 0)); port = s.getsockname()[1]; s.close()
    return port

parser = argparse.ArgumentParser()
parser.add_argument("--name", default="BERT-large")
parser.add_argument("--real-name", default="bert-large")
args = parser.parse_args()

PORT = get_free_port()

@batch
def infer_fn(sequence):
    return [sequence * 2 + 1]

triton = Triton(config=TritonConfig(http_port=PORT, grpc_port=get_free_port(), metrics_port=get_free_port()),
                security_config=TritonSecurityConfig(restricted_endpoints=[]))
triton.bind(args.real_name, infer_fn, [Tensor(name="sequence", dtype=np.float32, shape=(-1,))],
            [Tensor(name="logits", dtype=np.float32, shape=(-1,))], config=ModelConfig(max_batch_size=16))
triton.run()

client = ModelClient(f"localhost:{PORT}", args.name)
try:
    client.infer_sample(np.array([1, 2], dtype=np.float32))
    sys.exit(1)
except PyTritonClientModelUnavailableError as e:
    print("no such model:", args.name)
    if isinstance(e, PyTritonClientTimeoutError):
        print("timeout is a timeout")
    print("did you mean:", args.real_name in e.message)
client.close()

# programs for the old release only know the timeout
try:
    with ModelClient(f"localhost:{PORT}", args.name, init_timeout_s=1, lazy_init=False) as c:
        sys.exit(1)
except PyTritonClientTimeoutError:
    pass

with ModelClient(f"localhost:{PORT}", args.real_name, lazy_init=False) as c:
    r = c.infer_batch(np.array([[1, 2]], dtype=np.float32))
    print(r["logits"])
triton.stop()
