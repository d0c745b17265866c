# nvidia-pytriton 0.7, and what 0.2 had in addition. Decorated functions get what is documented in decorators.md.

"pytriton"

__version__: str
client: ModuleType
model_config: ModuleType
triton: ModuleType

"pytriton.triton"

class TritonConfig:
    def __init__(
        self,
        *,
        model_repository=None,
        id=None,
        log_verbose=None,
        log_file=None,
        exit_timeout_secs=None,
        exit_on_error=None,
        strict_readiness=None,
        allow_http=None,
        http_address=None,
        http_port=None,
        http_header_forward_pattern=None,
        http_thread_count=None,
        http_restricted_api=None,
        allow_grpc=None,
        grpc_address=None,
        grpc_port=None,
        grpc_header_forward_pattern=None,
        grpc_infer_allocation_pool_size=None,
        grpc_use_ssl=None,
        grpc_use_ssl_mutual=None,
        grpc_server_cert=None,
        grpc_server_key=None,
        grpc_root_cert=None,
        grpc_infer_response_compression_level=None,
        grpc_keepalive_time=None,
        grpc_keepalive_timeout=None,
        grpc_keepalive_permit_without_calls=None,
        grpc_http2_max_pings_without_data=None,
        grpc_http2_min_recv_ping_interval_without_data=None,
        grpc_http2_max_ping_strikes=None,
        grpc_restricted_protocol=None,
        allow_metrics=None,
        allow_gpu_metrics=None,
        allow_cpu_metrics=None,
        metrics_interval_ms=None,
        metrics_port=None,
        metrics_address=None,
        allow_sagemaker=None,
        sagemaker_port=None,
        sagemaker_safe_port_range=None,
        sagemaker_thread_count=None,
        allow_vertex_ai=None,
        vertex_ai_port=None,
        vertex_ai_thread_count=None,
        vertex_ai_default_model=None,
        metrics_config=None,
        trace_config=None,
        cache_config=None,
        cache_directory=None,
        buffer_manager_thread_count=None,
    ): ...
    def to_dict(self): ...
    def from_dict(config): ...
    def from_env():
        "differs: `false`, `no`, `off` and `0` are False, and lists may be separated by commas"

class TritonSecurityConfig:
    def __init__(self, access_token=None, restricted_endpoints=None): ...

class TritonLifecyclePolicy:
    def __init__(self, launch_triton_on_startup=True, local_model_store=False): ...

class TritonContext:
    def __init__(self, model_configs): ...

class TritonBase:
    "differs: the base of `Triton` and `RemoteTriton`, which make its arguments; programs do not make one"
    def bind(
        self, model_name, infer_func, inputs, outputs, model_version=1, config=None, strict=False, trace_config=None
    ): ...
    def connect(self): ...
    def serve(self, monitoring_period_s=...): ...
    def stop(self): ...
    def is_alive(self): ...
    def is_connected(self): ...
    def __enter__(self): ...
    def __exit__(self, *_): ...

class Triton(TritonBase):
    triton_context: TritonContext
    def __init__(self, *, config=None, workspace=None, triton_lifecycle_policy=None, security_config=None): ...
    def bind(
        self, model_name, infer_func, inputs, outputs, model_version=1, config=None, strict=False, trace_config=None
    ):
        "differs: a wrong model configuration is refused here, not when the server loads the model"
    def run(self):
        "differs: a server that cannot start is an error at once, with the end of its log"
    def serve(self, monitoring_period_s=...):
        "differs: SIGTERM stops as Ctrl+C does; the keyword `monitoring_period_sec` works too"
    def stop(self): ...
    def is_alive(self): ...
    def is_connected(self): ...
    def connect(self): ...
    def get_access_token(self): ...
    def __enter__(self): ...
    def __exit__(self, *_): ...

class RemoteTriton(TritonBase):
    def __init__(self, url, workspace=None, access_token=None): ...

DefaultTritonLifecyclePolicy: TritonLifecyclePolicy
VertextAILifecyclePolicy: TritonLifecyclePolicy
VALID_TRITON_ENDPOINTS = {
    "health",
    "metadata",
    "inference",
    "shared-memory",
    "model-config",
    "model-repository",
    "statistics",
    "trace",
    "logging",
}
DEFAULT_PROTECTED_ENDPOINTS = ["shared-memory", "model-repository", "statistics", "trace", "logging"]
TRITON_ACCESS_HEADER = "triton-access-token"
MONITORING_PERIOD_S = 10.0
MONITORING_PERIOD_SEC = 10.0
WAIT_FORM_MODEL_TIMEOUT_S = 60.0
INITIAL_BACKEND_SHM_SIZE = 4194304
GROWTH_BACKEND_SHM_SIZE = 1048576
MODEL_URL: str
MODEL_READY_URL: str
MODEL_CONFIG_URL: str
MODEL_INFER_URL: str

"pytriton.model_config"

class DeviceKind:
    KIND_AUTO = "KIND_AUTO"
    KIND_CPU = "KIND_CPU"
    KIND_GPU = "KIND_GPU"

class TimeoutAction:
    REJECT = "REJECT"
    DELAY = "DELAY"

class Tensor:
    name: str
    optional: bool
    def __init__(self, shape, dtype, name=None, optional=False): ...
    dtype: type
    "differs: texts such as `float32` work"

class QueuePolicy:
    def __init__(
        self,
        timeout_action=TimeoutAction.REJECT,
        default_timeout_microseconds=0,
        allow_timeout_override=False,
        max_queue_size=0,
    ): ...

class DynamicBatcher:
    def __init__(
        self,
        max_queue_delay_microseconds=0,
        preferred_batch_size=None,
        preserve_ordering=False,
        priority_levels=0,
        default_priority_level=0,
        default_queue_policy=None,
        priority_queue_policy=None,
    ): ...

class ModelConfig:
    def __init__(
        self,
        batching=True,
        max_batch_size=4,
        batcher=DynamicBatcher(),
        response_cache=False,
        decoupled=False,
        model_warmup=None,
    ): ...

"pytriton.model_config.common"

DeviceKind: type
DynamicBatcher: type
QueuePolicy: type
TimeoutAction: type

class WarmupInput:
    def __init__(self, dtype, shape, zero_data=False, random_data=False, input_data_file=None): ...

class ModelWarmup:
    def __init__(self, name, batch_size, inputs, count): ...

def generate_warmup_data(warmup_input, batch_size): ...
def generate_warmup_requests(model_warmup, input_specs, outputs_specs): ...

"pytriton.model_config.model_config"

ModelConfig: type

"pytriton.model_config.tensor"

Tensor: type

"pytriton.model_config.triton_model_config"

class TensorSpec:
    def __init__(self, name, shape, dtype, optional=False): ...

class ResponseCache:
    def __init__(self, enable): ...

class TritonModelConfig:
    backend: str
    "differs: `pytriton` where the native proxy serves the model, else `python`"
    def __init__(
        self,
        model_name,
        model_version=1,
        max_batch_size=4,
        batching=True,
        batcher=None,
        instance_group={},
        decoupled=False,
        backend_parameters={},
        inputs=None,
        outputs=None,
        response_cache=None,
        model_warmup=None,
    ): ...

"pytriton.model_config.generator"

class ModelConfigGenerator:
    def __init__(self, config): ...
    def get_config(self): ...
    def to_file(self, config_path): ...

"pytriton.model_config.parser"

class ModelConfigParser:
    def from_dict(model_config_dict): ...
    def from_file(*, config_path): ...

"pytriton.decorators"

InputNames: object
InferenceRequest: object
InferenceRequests: object
InferenceResult: object
InferenceResults: object

class ModelConfigDict(MutableMapping):
    def __getitem__(self, infer_callable): ...
    def __setitem__(self, infer_callable, item): ...
    def __delitem__(self, infer_callable): ...
    def __len__(self): ...
    def __iter__(self): ...

class TritonContext:
    model_configs: ModelConfigDict
    def __init__(self, model_configs): ...

class ConstantPadder:
    def __init__(self, pad_value=0): ...
    def __call__(self, batches_list): ...

def batch(wrapped, /): ...
def sample(wrapped, /): ...
def group_by_keys(wrapped, /): ...
def group_by_values(*keys, pad_fn=None): ...
def fill_optionals(**defaults): ...
def first_value(*keys, squeeze_single_values=True, strict=True): ...
def pad_batch(wrapped, /):
    "differs: outputs are cut to the rows of the request; there, they keep the padding, which `@batch` refuses"

def triton_context(wrapped, /): ...
def convert_output(outputs, wrapped=None, instance=None, model_config=None): ...
def get_inference_request_batch_size(inference_request): ...
def get_model_config(wrapped, instance): ...
def get_triton_context(wrapped, instance): ...

"pytriton.client"

class ModelClient(BaseModelClient):
    model_config: TritonModelConfig
    is_batching_supported: bool
    def __init__(
        self,
        url,
        model_name,
        model_version=None,
        *,
        lazy_init=True,
        init_timeout_s=None,
        inference_timeout_s=None,
        model_config=None,
        ensure_model_is_ready=True,
        access_token=None,
    ): ...
    def infer_sample(self, *inputs, parameters=None, headers=None, **named_inputs): ...
    def infer_batch(self, *inputs, parameters=None, headers=None, **named_inputs):
        "differs: more positional inputs than the model has are an error; there, they are dropped"
    def wait_for_model(self, timeout_s): ...
    def wait_for_server(self, timeout_s): ...
    def load_model(self, config=None, files=None): ...
    def unload_model(self): ...
    def from_existing_client(existing_client): ...
    def get_lib(self): ...
    def close(self): ...
    def __enter__(self): ...
    def __exit__(self, *_): ...

class AsyncioModelClient(BaseModelClient):
    model_config: TritonModelConfig
    def __init__(
        self,
        url,
        model_name,
        model_version=None,
        *,
        lazy_init=True,
        init_timeout_s=None,
        inference_timeout_s=None,
        model_config=None,
        ensure_model_is_ready=True,
        access_token=None,
    ): ...
    def infer_sample(self, *inputs, parameters=None, headers=None, **named_inputs): ...
    def infer_batch(self, *inputs, parameters=None, headers=None, **named_inputs): ...
    def wait_for_model(self, timeout_s): ...
    def from_existing_client(existing_client): ...
    def get_lib(self): ...
    def close(self): ...
    def __aenter__(self): ...
    def __aexit__(self, *_): ...

class FuturesModelClient:
    def __init__(
        self,
        url,
        model_name,
        model_version=None,
        *,
        max_workers=None,
        max_queue_size=None,
        non_blocking=False,
        init_timeout_s=None,
        inference_timeout_s=None,
        access_token=None,
    ): ...
    def infer_sample(self, *inputs, parameters=None, headers=None, **named_inputs): ...
    def infer_batch(self, *inputs, parameters=None, headers=None, **named_inputs): ...
    def wait_for_model(self, timeout_s): ...
    def model_config(self): ...
    def close(self, wait=True): ...
    def __enter__(self): ...
    def __exit__(self, *_): ...

class DecoupledModelClient(BaseModelClient):
    def infer_sample(self, *inputs, parameters=None, headers=None, **named_inputs): ...
    def infer_batch(self, *inputs, parameters=None, headers=None, **named_inputs):
        "differs: takes parameters, and headers when the stream is opened; there, they are refused"

class AsyncioDecoupledModelClient(BaseModelClient):
    def __init__(
        self,
        url,
        model_name,
        model_version=None,
        *,
        lazy_init=True,
        init_timeout_s=None,
        inference_timeout_s=None,
        model_config=None,
        ensure_model_is_ready=True,
        access_token=None,
    ):
        "differs: an HTTP address is refused here; there, at the first inference"
    def infer_sample(self, *inputs, parameters=None, headers=None, **named_inputs): ...
    def infer_batch(self, *inputs, parameters=None, headers=None, **named_inputs): ...

"pytriton.client.client"

AsyncioDecoupledModelClient: type
AsyncioModelClient: type
DecoupledModelClient: type
FuturesModelClient: type
ModelClient: type
DEFAULT_INFERENCE_TIMEOUT_S = 60.0

class BaseModelClient:
    def __init__(
        self,
        url,
        model_name,
        model_version=None,
        *,
        lazy_init=True,
        init_timeout_s=None,
        inference_timeout_s=None,
        model_config=None,
        ensure_model_is_ready=True,
        access_token=None,
    ): ...
    def create_client_from_url(self, url, network_timeout_s=None): ...
    def from_existing_client(existing_client): ...
    def get_lib(self): ...

"pytriton.client.exceptions"

class PyTritonClientError(Exception):
    message: str

class PyTritonClientValueError(PyTritonClientError): ...
class PyTritonClientInvalidUrlError(PyTritonClientValueError): ...
class PyTritonClientUrlParseError(PyTritonClientValueError): ...
class PyTritonClientTimeoutError(PyTritonClientError): ...
class PyTritonClientModelUnavailableError(PyTritonClientError): ...
class PyTritonClientClosedError(PyTritonClientError): ...
class PyTritonClientModelDoesntSupportBatchingError(PyTritonClientError): ...
class PyTritonClientInferenceServerError(PyTritonClientError): ...
class PyTritonClientQueueFullError(PyTritonClientError): ...

"pytriton.client.warnings"

class PyTritonWarning(UserWarning): ...
class NotSupportedTimeoutWarning(PyTritonWarning): ...

"pytriton.client.auth"

def create_auth_headers(access_token, protocol): ...
def extract_access_token_from_headers(headers): ...

"pytriton.client.utils"

LATEST_MODEL_VERSION = "<latest>"

class TritonUrl:
    hostname: str
    port: int
    scheme: str
    with_scheme: str
    without_scheme: str
    def from_url(url): ...

class ModelState:
    LOADING = "LOADING"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"
    READY = "READY"

def create_client_from_url(url, network_timeout_s=None): ...
def get_model_state(client, model_name, model_version=None, headers=None): ...
def get_model_config(client, model_name, model_version=None, timeout_s=None, headers=None): ...
def wait_for_server_ready(client, timeout_s=None, headers=None): ...
def wait_for_model_ready(client, model_name, model_version=None, timeout_s=None, headers=None): ...
def parse_http_response(models): ...
def parse_grpc_response(models): ...

"pytriton.client.asyncio_utils"

def asyncio_get_model_state(client, model_name, model_version=None, headers=None): ...
def asyncio_get_model_config(client, model_name, model_version=None, timeout_s=60.0, headers=None): ...
def asyncio_wait_for_server_ready(asyncio_client, sleep_time_s, headers=None): ...
def asyncio_wait_for_model_status_loaded(
    asyncio_client, model_name, sleep_time_s, model_version=None, headers=None
): ...
def asyncio_wait_for_model_ready(asyncio_client, model_name, model_version=None, timeout_s=60.0, headers=None): ...

"pytriton.exceptions"

class PyTritonError(Exception):
    message: str

class PyTritonValidationError(PyTritonError): ...
class PyTritonInvalidOperationError(PyTritonError): ...
class PyTritonBadParameterError(PyTritonError): ...
class PyTritonModelConfigError(PyTritonError): ...
class PyTritonUnrecoverableError(PyTritonError): ...
class PyTritonRuntimeError(PyTritonError): ...

"pytriton.constants"

DEFAULT_HTTP_PORT = 8000
DEFAULT_GRPC_PORT = 8001
DEFAULT_METRICS_PORT = 8002
TRITON_LOCAL_IP = "127.0.0.1"
TRITON_CONTEXT_FIELD_NAME = "triton_context"
DEFAULT_TRITON_STARTUP_TIMEOUT_S = 120
CREATE_TRITON_CLIENT_TIMEOUT_S = 10
PYTRITON_HOME: object

"pytriton.proxy.types"

Requests: object
Responses: object
ResponsesOrError: object
ResponsesNoneOrError: object
Scope: object

class Request(MutableMapping):
    def __init__(self, data, parameters=None, span=None, requested_output_names=None): ...
    def __getitem__(self, input_name, /): ...
    def __setitem__(self, input_name, value, /): ...
    def __delitem__(self, input_name, /): ...
    def __len__(self): ...
    def __iter__(self): ...
    def items(self): ...
    def keys(self): ...
    def values(self): ...
    def traced_span(self, name): ...

class Response(MutableMapping):
    def __init__(self, data): ...

"pytriton.proxy.validators"

class TritonResultsValidator:
    def __init__(self, model_config, strict, /): ...
    def validate_responses(self, requests, responses): ...

"pytriton.proxy.telemetry"

def set_telemetry_tracer(tracer): ...
def get_telemetry_tracer(): ...
def parse_trace_config(triton_trace_config, /): ...
def build_proxy_tracer_from_triton_config(triton_trace_config, /): ...
def traced_span(request, span_name, **kwargs): ...
def start_span_from_span(span, name, /): ...
def start_span_from_remote(span_dict, name, /): ...
def get_span_dict(span): ...
def end_span(span): ...
def raise_if_no_telemetry(): ...

"pytriton.utils.workspace"

class CleanupWarning(UserWarning): ...

class Workspace:
    path: Path
    model_store_path: Path
    def __init__(self, workspace_path=None): ...
    def exists(self): ...
    def is_empty(self): ...
    def clean(self): ...

"pytriton.server.triton_server_config"

class TritonServerConfig:
    def allowed_keys(): ...
    def update_config(self, params): ...
    def to_cli_string(self): ...
    def to_args_list(self): ...
    def copy(self): ...
    def server_args(self): ...
    def __getitem__(self, key, /): ...
    def __setitem__(self, key, value, /): ...
    def __contains__(self, key, /): ...

"pytriton.models.model"

Model: type
"cannot: an internal of that package; `Triton.bind` makes models, and `Triton.is_alive` watches them"

class ModelEvent:
    "cannot: an internal of that package; what happens to workers is in the log, and ends `Triton.serve`"
