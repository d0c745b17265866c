"""Local model store, workspaces, tokens, lifecycle policies."""
import os
import sys
import tempfile
import numpy as np
import tritonclient.http as httpclient
from pytriton.client import ModelClient
from pytriton.client.auth import create_auth_headers, extract_access_token_from_headers
from pytriton.client.utils import (
    LATEST_MODEL_VERSION, ModelState, TritonUrl, create_client_from_url, get_model_config, get_model_state, parse_grpc_response,
    parse_http_response, wait_for_model_ready, wait_for_server_ready,
)
from pytriton.constants import DEFAULT_HTTP_PORT, TRITON_CONTEXT_FIELD_NAME, TRITON_LOCAL_IP
from pytriton.exceptions import PyTritonValidationError
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import (
    DEFAULT_PROTECTED_ENDPOINTS, TRITON_ACCESS_HEADER, VALID_TRITON_ENDPOINTS, DefaultTritonLifecyclePolicy, Triton,
    TritonConfig, TritonLifecyclePolicy, TritonSecurityConfig, VertextAILifecyclePolicy,
)
from pytriton.utils.workspace import Workspace

http, grpc, metrics = map(int, sys.argv[1:])
print(DEFAULT_HTTP_PORT, TRITON_LOCAL_IP, sorted(set(DEFAULT_PROTECTED_ENDPOINTS) - set(VALID_TRITON_ENDPOINTS)), TRITON_ACCESS_HEADER)
print(VertextAILifecyclePolicy.local_model_store, DefaultTritonLifecyclePolicy.launch_triton_on_startup)
workspace = Workspace(os.path.join(tempfile.mkdtemp(), "ws"))
print(workspace.exists(), workspace.model_store_path.is_dir())
policy = TritonLifecyclePolicy(launch_triton_on_startup=False, local_model_store=True)
security = TritonSecurityConfig(restricted_endpoints=["model-repository", "statistics"])
try:
    TritonSecurityConfig(restricted_endpoints=["nothing"])
except PyTritonValidationError as e:
    print("bad endpoint")
config = TritonConfig(id="mine", http_port=http, grpc_port=grpc, metrics_port=metrics)
with Triton(config=config, workspace=workspace, triton_lifecycle_policy=policy, security_config=security) as triton:
    print("alive", triton.is_alive())
    triton.bind("m", lambda rs: [{"y": r["x"]} for r in rs], [Tensor(name="x", dtype=np.float32, shape=(-1,))],
                [Tensor(name="y", dtype=np.float32, shape=(-1,))], config=ModelConfig(batcher=None))
    triton.run()
    print("alive", triton.is_alive(), triton.is_connected(), os.listdir(workspace.model_store_path))
    token = triton.get_access_token()
    print(len(token), token == security.access_token)
    headers = create_auth_headers(token, "http")
    print(extract_access_token_from_headers(headers) == token, extract_access_token_from_headers({}))
    with ModelClient(f"localhost:{http}", "m", access_token=token) as c:
        print(c.infer_sample(np.ones(2, np.float32))["y"].tolist())
        c.wait_for_server(10)
        c.wait_for_model(10)
        other = ModelClient.from_existing_client(c)
        print(other.infer_sample(np.ones(2, np.float32))["y"].tolist())
        other.close()
    lib = create_client_from_url(f"http://localhost:{http}", network_timeout_s=10)
    wait_for_server_ready(lib, timeout_s=10)
    wait_for_model_ready(lib, "m", timeout_s=10)
    print(get_model_config(lib, "m", timeout_s=10).model_name, get_model_state(lib, "m", headers=headers) == ModelState.READY)
    print(parse_http_response(lib.get_model_repository_index(headers=headers))[("m", "1")])
    try:
        lib.get_model_repository_index()
    except Exception as e:
        print("restricted" in str(e))
    lib.close()
    url = TritonUrl.from_url("GRPC://localhost:9")
    print(url.scheme, url.hostname, url.port, url.with_scheme, url.without_scheme, LATEST_MODEL_VERSION)
print(workspace.exists())
