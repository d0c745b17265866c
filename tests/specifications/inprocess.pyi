# The server's in-process Python API, `import tritonserver`: its first release, and what later ones added.

"pytriton.inprocess"

class MemoryType:
    CPU = 0
    CPU_PINNED = 1
    GPU = 2

class DataType:
    INVALID = 0
    BOOL = 1
    UINT8 = 2
    UINT16 = 3
    UINT32 = 4
    UINT64 = 5
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FP16 = 10
    FP32 = 11
    FP64 = 12
    BYTES = 13
    BF16 = 14

class ModelControlMode:
    NONE = 0
    POLL = 1
    EXPLICIT = 2

class RateLimitMode:
    OFF = 0
    EXEC_COUNT = 1

class LogFormat:
    DEFAULT = 0
    ISO8601 = 1

class MetricFormat:
    PROMETHEUS = 0

class ModelBatchFlag:
    UNKNOWN = 1
    FIRST_DIM = 2

class ModelTxnPropertyFlag:
    ONE_TO_ONE = 1
    DECOUPLED = 2

class InstanceGroupKind:
    AUTO = 0
    CPU = 1
    GPU = 2
    MODEL = 3

class MetricKind:
    COUNTER = 0
    GAUGE = 1

class DLDeviceType:
    kDLCPU = 1
    kDLCUDA = 2
    kDLCUDAHost = 3

class TritonError(Exception): ...
class UnknownError(TritonError): ...
class InternalError(TritonError): ...
class NotFoundError(TritonError): ...
class InvalidArgumentError(TritonError): ...
class UnavailableError(TritonError): ...
class UnsupportedError(TritonError): ...
class AlreadyExistsError(TritonError): ...

class CancelledError(TritonError):
    "differs: a cancelled request is an `UnknownError` there; here it has its own class"

class RateLimiterResource:
    def __init__(self, name, count, device): ...

class ModelLoadDeviceLimit:
    def __init__(self, kind, device, fraction): ...

class Options:
    def __init__(
        self,
        model_repository=[],
        server_id="triton",
        model_control_mode=ModelControlMode.NONE,
        startup_models=[],
        strict_model_config=True,
        rate_limiter_mode=RateLimitMode.OFF,
        rate_limiter_resources=[],
        pinned_memory_pool_size=1 << 28,
        cuda_memory_pool_sizes={},
        cache_config={},
        cache_directory="/opt/tritonserver/caches",
        min_supported_compute_capability=6.0,
        exit_on_error=True,
        strict_readiness=True,
        exit_timeout=30,
        buffer_manager_thread_count=0,
        model_load_thread_count=...,
        model_load_retry_count=0,
        model_namespacing=False,
        enable_peer_access=True,
        log_file=None,
        log_info=False,
        log_warn=False,
        log_error=False,
        log_format=LogFormat.DEFAULT,
        log_verbose=0,
        metrics=True,
        gpu_metrics=True,
        cpu_metrics=True,
        metrics_interval=2000,
        backend_directory="/opt/tritonserver/backends",
        repo_agent_directory="/opt/tritonserver/repoagents",
        model_load_device_limits=[],
        backend_configuration={},
        host_policies={},
        metrics_configuration={},
    ): ...
    model_load_thread_count: int
    "differs: 1 by default, not 4: Python models that load at once abort a process that uses gRPC"
    backend_directory: str
    "differs: the bundled backends, if the default folder does not exist"
    cache_directory: str
    "differs: the bundled caches, if the default folder does not exist"

class Server:
    options: Options
    def __init__(self, options=None, **kwargs):
        "differs: options together with keywords are an `InvalidArgumentError`; there, the keywords are ignored"
    def start(self, wait_until_ready=False, polling_interval=0.1, timeout=None): ...
    def stop(self): ...
    def live(self): ...
    def ready(self): ...
    def metadata(self): ...
    def metrics(self, metric_format=MetricFormat.PROMETHEUS): ...
    def model(self, model_name, model_version=-1): ...
    def models(self, exclude_not_ready=False): ...
    def load(self, model_name, parameters=None): ...
    def unload(self, model, unload_dependents=False, wait_until_unloaded=False, polling_interval=0.1, timeout=None):
        "differs: a wait that times out is an `UnavailableError`; there, it ends in silence"
    def register_model_repository(self, repository_path, name_mapping=None): ...
    def unregister_model_repository(self, repository_path): ...
    def poll_model_repository(self): ...

class ModelDictionary(dict):
    def __getitem__(self, key, /): ...

class Model:
    server: Server
    name: str
    version: int
    state: str
    reason: str
    def __init__(self, server, name, version=-1, state=None, reason=None): ...
    def ready(self): ...
    def metadata(self): ...
    def config(self, config_version=1): ...
    def statistics(self): ...
    def batch_properties(self): ...
    def transaction_properties(self): ...
    def create_request(self, **kwargs): ...
    def infer(self, inference_request=None, raise_on_error=True, **kwargs): ...
    def async_infer(self, inference_request=None, raise_on_error=True, **kwargs): ...

class InferenceRequest:
    def __init__(
        self,
        model,
        request_id=None,
        flags=0,
        correlation_id=None,
        priority=0,
        timeout=0,
        inputs={},
        parameters={},
        output_memory_type=None,
        output_memory_allocator=None,
        response_queue=None,
    ): ...

class InferenceResponse:
    model: Model
    "differs: a `Model` of its own; there, the version of the caller's is overwritten"
    def __init__(
        self,
        model,
        request_id=None,
        parameters={},
        outputs={},
        error=None,
        classification_label=None,
        final=False,
    ): ...

class ResponseIterator:
    def __iter__(self): ...
    def __next__(self): ...
    def cancel(self):
        "differs: does nothing for a request that is answered; there, it may raise"

class AsyncResponseIterator:
    def __aiter__(self): ...
    def __anext__(self): ...
    def cancel(self): ...

class MemoryBuffer:
    def __init__(self, data_ptr, memory_type, memory_type_id, size, owner): ...
    def from_dlpack(owner): ...

class MemoryAllocator:
    def allocate(self, size, memory_type, memory_type_id): ...

default_memory_allocators: dict

class Tensor:
    data_ptr: int
    memory_type: MemoryType
    memory_type_id: int
    size: int
    def __init__(self, data_type, shape, memory_buffer): ...
    def from_dlpack(obj): ...
    def from_bytes_array(bytes_array): ...
    def from_string_array(string_array): ...
    def to_bytes_array(self): ...
    def to_string_array(self): ...
    def to_device(self, device): ...
    def to_host(self): ...
    def __dlpack__(self, *, stream=None): ...
    def __dlpack_device__(self): ...

class MetricFamily:
    def __init__(self, kind, name, description): ...

class Metric:
    value: float
    kind: MetricKind
    def __init__(self, family, labels=None): ...
    def increment(self, value): ...
    def set_value(self, value): ...
