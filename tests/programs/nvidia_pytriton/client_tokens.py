# prints: token length 43
# prints: same token: True None
# prints: not allowed
# prints: loaded again [b'HELLO']
# prints: unknown: PyTritonClientModelUnavailableError
# prints: all endpoints: ok
"""Access tokens as a paranoid admin sets them."""
import socket
import numpy as np
from pytriton.client import ModelClient
from pytriton.client.auth import create_auth_headers, extract_access_token_from_headers
from pytriton.client.exceptions import PyTritonClientError, PyTritonClientTimeoutError
from pytriton.decorators import sample
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import DEFAULT_PROTECTED_ENDPOINTS, VALID_TRITON_ENDPOINTS, Triton, TritonConfig, TritonSecurityConfig

def port():
    sock = socket.socket()
    sock.bind(('', 0))
    try: return sock.getsockname()[1]
    finally: sock.close()

@sample
def upper(text):
    return {"out": np.char.upper(text.astype(bytes))}

def server(security=None):
    cfg = TritonConfig(http_port=port(), grpc_port=port(), metrics_port=port())
    t = Triton(config=cfg, security_config=security)
    t.bind("Upper", upper, [Tensor(name="text", dtype=bytes, shape=(1,))], [Tensor(name="out", dtype=bytes, shape=(1,))],
           config=ModelConfig(batching=False))
    t.run()
    return t, cfg

t, cfg = server()
token = t.get_access_token()
print("token length", len(token))
headers = create_auth_headers(token, "grpc")
print("same token:", extract_access_token_from_headers(headers) == token, extract_access_token_from_headers(None))

url = "grpc://localhost:%s" % cfg.grpc_port
nobody = ModelClient(url, "Upper")
try:
    nobody.unload_model()
    raise SystemExit(1)
except PyTritonClientError:
    print("not allowed")
nobody.close()

admin = ModelClient(url, "Upper", access_token=token)
admin.unload_model()
admin.load_model()
print("loaded again", admin.infer_sample(np.array([b"hello"]))["out"])
admin.close()

try:
    ModelClient(url, "Lower", lazy_init=False, init_timeout_s=2)   # nobody may ask for the list of models
    raise SystemExit(1)
except PyTritonClientTimeoutError as e:
    print("unknown:", type(e).__name__)
t.stop()

assert isinstance(VALID_TRITON_ENDPOINTS, set) and set(DEFAULT_PROTECTED_ENDPOINTS) < VALID_TRITON_ENDPOINTS
t, cfg = server(TritonSecurityConfig(access_token="abc", restricted_endpoints=VALID_TRITON_ENDPOINTS - {"health"}))
with ModelClient("http://localhost:%d" % cfg.http_port, "Upper", access_token="abc") as c:
    c.wait_for_server(30); c.wait_for_model(30)
    assert c.infer_sample(np.array([b"x"]))["out"].tolist() == [b"X"]
t.stop()
print("all endpoints: ok")
