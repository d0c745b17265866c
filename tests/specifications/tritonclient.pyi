# tritonclient 2.50 and newer, which is used as it is: what our server answers.

"tritonclient.http"

class InferInput:
    def __init__(self, name, shape, datatype): ...
    def name(self): ...
    def shape(self): ...
    def datatype(self): ...
    def set_shape(self, shape): ...
    def set_data_from_numpy(self, input_tensor, binary_data=True): ...
    def set_shared_memory(self, region_name, byte_size, offset=0): ...

class InferRequestedOutput:
    def __init__(self, name, binary_data=True, class_count=0): ...
    def name(self): ...
    def set_shared_memory(self, region_name, byte_size, offset=0): ...
    def unset_shared_memory(self): ...

class InferResult:
    def as_numpy(self, name): ...
    def get_output(self, name): ...
    def get_response(self): ...
    def from_response_body(response_body, verbose=False, header_length=None, content_encoding=None): ...

class InferAsyncRequest:
    def get_result(self, block=True, timeout=None): ...

class InferenceServerClientPlugin: ...

class InferenceServerException(Exception):
    def __init__(self, msg, status=None, debug_details=None): ...
    def message(self): ...
    def status(self): ...
    def debug_details(self): ...

class InferenceServerClient:
    def __init__(
        self,
        url,
        verbose=False,
        concurrency=1,
        connection_timeout=60.0,
        network_timeout=60.0,
        max_greenlets=None,
        ssl=False,
        ssl_options=None,
        ssl_context_factory=None,
        insecure=False,
    ):
        "differs: `ssl` needs `TritonConfig(http_use_ssl=True)`; Triton's own endpoint has no TLS over HTTP"
    def is_server_live(self, headers=None, query_params=None): ...
    def is_server_ready(self, headers=None, query_params=None): ...
    def is_model_ready(self, model_name, model_version="", headers=None, query_params=None): ...
    def get_server_metadata(self, headers=None, query_params=None): ...
    def get_model_metadata(self, model_name, model_version="", headers=None, query_params=None): ...
    def get_model_config(self, model_name, model_version="", headers=None, query_params=None): ...
    def get_model_repository_index(self, headers=None, query_params=None):
        "differs: takes the access token by default, as the header `triton-access-token`"
    def load_model(self, model_name, headers=None, query_params=None, config=None, files=None):
        "differs: takes the access token by default, as the header `triton-access-token`"
    def unload_model(self, model_name, headers=None, query_params=None, unload_dependents=False):
        "differs: takes the access token by default, as the header `triton-access-token`"
    def get_inference_statistics(self, model_name="", model_version="", headers=None, query_params=None):
        "differs: takes the access token by default, as the header `triton-access-token`"
    def update_trace_settings(self, model_name=None, settings={}, headers=None, query_params=None):
        "differs: takes the access token by default, as the header `triton-access-token`"
    def get_trace_settings(self, model_name=None, headers=None, query_params=None):
        "differs: takes the access token by default, as the header `triton-access-token`"
    def update_log_settings(self, settings, headers=None, query_params=None):
        "differs: takes the access token by default, as the header `triton-access-token`"
    def get_log_settings(self, headers=None, query_params=None):
        "differs: takes the access token by default, as the header `triton-access-token`"
    def get_system_shared_memory_status(self, region_name="", headers=None, query_params=None):
        "differs: takes the access token by default, as the header `triton-access-token`"
    def register_system_shared_memory(self, name, key, byte_size, offset=0, headers=None, query_params=None):
        "differs: takes the access token by default, as the header `triton-access-token`"
    def unregister_system_shared_memory(self, name="", headers=None, query_params=None):
        "differs: takes the access token by default, as the header `triton-access-token`"
    def get_cuda_shared_memory_status(self, region_name="", headers=None, query_params=None):
        "differs: takes the access token by default, as the header `triton-access-token`"
    def register_cuda_shared_memory(self, name, raw_handle, device_id, byte_size, headers=None, query_params=None):
        "differs: takes the access token by default, as the header `triton-access-token`"
    def unregister_cuda_shared_memory(self, name="", headers=None, query_params=None):
        "differs: takes the access token by default, as the header `triton-access-token`"
    def infer(
        self,
        model_name,
        inputs,
        model_version="",
        outputs=None,
        request_id="",
        sequence_id=0,
        sequence_start=False,
        sequence_end=False,
        priority=0,
        timeout=None,
        headers=None,
        query_params=None,
        request_compression_algorithm=None,
        response_compression_algorithm=None,
        parameters=None,
    ): ...
    def async_infer(
        self,
        model_name,
        inputs,
        model_version="",
        outputs=None,
        request_id="",
        sequence_id=0,
        sequence_start=False,
        sequence_end=False,
        priority=0,
        timeout=None,
        headers=None,
        query_params=None,
        request_compression_algorithm=None,
        response_compression_algorithm=None,
        parameters=None,
    ): ...
    def generate_request_body(
        inputs,
        outputs=None,
        request_id="",
        sequence_id=0,
        sequence_start=False,
        sequence_end=False,
        priority=0,
        timeout=None,
        parameters=None,
    ): ...
    def parse_response_body(response_body, verbose=False, header_length=None, content_encoding=None): ...
    def register_plugin(self, plugin): ...
    def plugin(self): ...
    def unregister_plugin(self): ...
    def close(self): ...

"tritonclient.http.aio"

class InferenceServerClient:
    def __init__(self, url, verbose=False, conn_limit=100, conn_timeout=60.0, ssl=False, ssl_context=None):
        "differs: `ssl` needs `TritonConfig(http_use_ssl=True)`; Triton's own endpoint has no TLS over HTTP"
    def is_server_live(self, headers=None, query_params=None): ...
    def is_server_ready(self, headers=None, query_params=None): ...
    def is_model_ready(self, model_name, model_version="", headers=None, query_params=None): ...
    def get_server_metadata(self, headers=None, query_params=None): ...
    def get_model_metadata(self, model_name, model_version="", headers=None, query_params=None): ...
    def get_model_config(self, model_name, model_version="", headers=None, query_params=None): ...
    def get_model_repository_index(self, headers=None, query_params=None):
        "differs: takes the access token by default, as the header `triton-access-token`"
    def load_model(self, model_name, headers=None, query_params=None, config=None, files=None):
        "differs: takes the access token by default, as the header `triton-access-token`"
    def unload_model(self, model_name, headers=None, query_params=None, unload_dependents=False):
        "differs: takes the access token by default, as the header `triton-access-token`"
    def get_inference_statistics(self, model_name="", model_version="", headers=None, query_params=None):
        "differs: takes the access token by default, as the header `triton-access-token`"
    def update_trace_settings(self, model_name=None, settings={}, headers=None, query_params=None):
        "differs: takes the access token by default, as the header `triton-access-token`"
    def get_trace_settings(self, model_name=None, headers=None, query_params=None):
        "differs: takes the access token by default, as the header `triton-access-token`"
    def update_log_settings(self, settings, headers=None, query_params=None):
        "differs: takes the access token by default, as the header `triton-access-token`"
    def get_log_settings(self, headers=None, query_params=None):
        "differs: takes the access token by default, as the header `triton-access-token`"
    def get_system_shared_memory_status(self, region_name="", headers=None, query_params=None):
        "differs: takes the access token by default, as the header `triton-access-token`"
    def register_system_shared_memory(self, name, key, byte_size, offset=0, headers=None, query_params=None):
        "differs: takes the access token by default, as the header `triton-access-token`"
    def unregister_system_shared_memory(self, name="", headers=None, query_params=None):
        "differs: takes the access token by default, as the header `triton-access-token`"
    def get_cuda_shared_memory_status(self, region_name="", headers=None, query_params=None):
        "differs: takes the access token by default, as the header `triton-access-token`"
    def register_cuda_shared_memory(self, name, raw_handle, device_id, byte_size, headers=None, query_params=None):
        "differs: takes the access token by default, as the header `triton-access-token`"
    def unregister_cuda_shared_memory(self, name="", headers=None, query_params=None):
        "differs: takes the access token by default, as the header `triton-access-token`"
    def infer(
        self,
        model_name,
        inputs,
        model_version="",
        outputs=None,
        request_id="",
        sequence_id=0,
        sequence_start=False,
        sequence_end=False,
        priority=0,
        timeout=None,
        headers=None,
        query_params=None,
        request_compression_algorithm=None,
        response_compression_algorithm=None,
        parameters=None,
    ): ...
    def generate_request_body(
        inputs,
        outputs=None,
        request_id="",
        sequence_id=0,
        sequence_start=False,
        sequence_end=False,
        priority=0,
        timeout=None,
        parameters=None,
    ): ...
    def parse_response_body(response_body, verbose=False, header_length=None, content_encoding=None): ...
    def register_plugin(self, plugin): ...
    def plugin(self): ...
    def unregister_plugin(self): ...
    def close(self): ...

"tritonclient.http.auth"

class BasicAuth:
    def __init__(self, username, password): ...

"tritonclient.grpc"

class InferInput:
    def __init__(self, name, shape, datatype): ...
    def name(self): ...
    def shape(self): ...
    def datatype(self): ...
    def set_shape(self, shape): ...
    def set_data_from_numpy(self, input_tensor): ...
    def set_shared_memory(self, region_name, byte_size, offset=0): ...

class InferRequestedOutput:
    def __init__(self, name, class_count=0): ...
    def name(self): ...
    def set_shared_memory(self, region_name, byte_size, offset=0): ...
    def unset_shared_memory(self): ...

class InferResult:
    def as_numpy(self, name): ...
    def get_output(self, name, as_json=False): ...
    def get_response(self, as_json=False): ...

class KeepAliveOptions:
    def __init__(
        self,
        keepalive_time_ms=2147483647,
        keepalive_timeout_ms=20000,
        keepalive_permit_without_calls=False,
        http2_max_pings_without_data=2,
    ): ...

class InferenceServerClientPlugin: ...
class InferenceServerException(Exception): ...

class InferenceServerClient:
    def __init__(
        self,
        url,
        verbose=False,
        ssl=False,
        root_certificates=None,
        private_key=None,
        certificate_chain=None,
        creds=None,
        keepalive_options=None,
        channel_args=None,
    ): ...
    def is_server_live(self, headers=None, client_timeout=None): ...
    def is_server_ready(self, headers=None, client_timeout=None): ...
    def is_model_ready(self, model_name, model_version="", headers=None, client_timeout=None): ...
    def get_server_metadata(self, headers=None, as_json=False, client_timeout=None): ...
    def get_model_metadata(self, model_name, model_version="", headers=None, as_json=False, client_timeout=None): ...
    def get_model_config(self, model_name, model_version="", headers=None, as_json=False, client_timeout=None): ...
    def get_model_repository_index(self, headers=None, as_json=False, client_timeout=None):
        "differs: takes the access token by default, as the header `triton-grpc-protocol-triton-access-token`"
    def load_model(self, model_name, headers=None, config=None, files=None, client_timeout=None):
        "differs: takes the access token by default, as the header `triton-grpc-protocol-triton-access-token`"
    def unload_model(self, model_name, headers=None, unload_dependents=False, client_timeout=None):
        "differs: takes the access token by default, as the header `triton-grpc-protocol-triton-access-token`"
    def get_inference_statistics(
        self, model_name="", model_version="", headers=None, as_json=False, client_timeout=None
    ):
        "differs: takes the access token by default, as the header `triton-grpc-protocol-triton-access-token`"
    def update_trace_settings(self, model_name=None, settings={}, headers=None, as_json=False, client_timeout=None):
        "differs: takes the access token by default, as the header `triton-grpc-protocol-triton-access-token`"
    def get_trace_settings(self, model_name=None, headers=None, as_json=False, client_timeout=None):
        "differs: takes the access token by default, as the header `triton-grpc-protocol-triton-access-token`"
    def update_log_settings(self, settings, headers=None, as_json=False, client_timeout=None):
        "differs: takes the access token by default, as the header `triton-grpc-protocol-triton-access-token`"
    def get_log_settings(self, headers=None, as_json=False, client_timeout=None):
        "differs: takes the access token by default, as the header `triton-grpc-protocol-triton-access-token`"
    def get_system_shared_memory_status(self, region_name="", headers=None, as_json=False, client_timeout=None):
        "differs: takes the access token by default, as the header `triton-grpc-protocol-triton-access-token`"
    def register_system_shared_memory(self, name, key, byte_size, offset=0, headers=None, client_timeout=None):
        "differs: takes the access token by default, as the header `triton-grpc-protocol-triton-access-token`"
    def unregister_system_shared_memory(self, name="", headers=None, client_timeout=None):
        "differs: takes the access token by default, as the header `triton-grpc-protocol-triton-access-token`"
    def get_cuda_shared_memory_status(self, region_name="", headers=None, as_json=False, client_timeout=None):
        "differs: takes the access token by default, as the header `triton-grpc-protocol-triton-access-token`"
    def register_cuda_shared_memory(self, name, raw_handle, device_id, byte_size, headers=None, client_timeout=None):
        "differs: takes the access token by default, as the header `triton-grpc-protocol-triton-access-token`"
    def unregister_cuda_shared_memory(self, name="", headers=None, client_timeout=None):
        "differs: takes the access token by default, as the header `triton-grpc-protocol-triton-access-token`"
    def infer(
        self,
        model_name,
        inputs,
        model_version="",
        outputs=None,
        request_id="",
        sequence_id=0,
        sequence_start=False,
        sequence_end=False,
        priority=0,
        timeout=None,
        client_timeout=None,
        headers=None,
        compression_algorithm=None,
        parameters=None,
    ): ...
    def async_infer(
        self,
        model_name,
        inputs,
        callback,
        model_version="",
        outputs=None,
        request_id="",
        sequence_id=0,
        sequence_start=False,
        sequence_end=False,
        priority=0,
        timeout=None,
        client_timeout=None,
        headers=None,
        compression_algorithm=None,
        parameters=None,
    ): ...
    def start_stream(self, callback, stream_timeout=None, headers=None, compression_algorithm=None): ...
    def async_stream_infer(
        self,
        model_name,
        inputs,
        model_version="",
        outputs=None,
        request_id="",
        sequence_id=0,
        sequence_start=False,
        sequence_end=False,
        enable_empty_final_response=False,
        priority=0,
        timeout=None,
        parameters=None,
    ): ...
    def stop_stream(self, cancel_requests=False): ...
    def register_plugin(self, plugin): ...
    def plugin(self): ...
    def unregister_plugin(self): ...
    def close(self): ...

"tritonclient.grpc._client"

class CallContext:
    def cancel(self): ...

"tritonclient.grpc.aio"

class InferenceServerClient:
    def __init__(
        self,
        url,
        verbose=False,
        ssl=False,
        root_certificates=None,
        private_key=None,
        certificate_chain=None,
        creds=None,
        keepalive_options=None,
        channel_args=None,
    ): ...
    def is_server_live(self, headers=None, client_timeout=None): ...
    def is_server_ready(self, headers=None, client_timeout=None): ...
    def is_model_ready(self, model_name, model_version="", headers=None, client_timeout=None): ...
    def get_server_metadata(self, headers=None, as_json=False, client_timeout=None): ...
    def get_model_metadata(self, model_name, model_version="", headers=None, as_json=False, client_timeout=None): ...
    def get_model_config(self, model_name, model_version="", headers=None, as_json=False, client_timeout=None): ...
    def get_model_repository_index(self, headers=None, as_json=False, client_timeout=None):
        "differs: takes the access token by default, as the header `triton-grpc-protocol-triton-access-token`"
    def load_model(self, model_name, headers=None, config=None, files=None, client_timeout=None):
        "differs: takes the access token by default, as the header `triton-grpc-protocol-triton-access-token`"
    def unload_model(self, model_name, headers=None, unload_dependents=False, client_timeout=None):
        "differs: takes the access token by default, as the header `triton-grpc-protocol-triton-access-token`"
    def get_inference_statistics(
        self, model_name="", model_version="", headers=None, as_json=False, client_timeout=None
    ):
        "differs: takes the access token by default, as the header `triton-grpc-protocol-triton-access-token`"
    def update_trace_settings(self, model_name=None, settings={}, headers=None, as_json=False, client_timeout=None):
        "differs: takes the access token by default, as the header `triton-grpc-protocol-triton-access-token`"
    def get_trace_settings(self, model_name=None, headers=None, as_json=False, client_timeout=None):
        "differs: takes the access token by default, as the header `triton-grpc-protocol-triton-access-token`"
    def update_log_settings(self, settings, headers=None, as_json=False, client_timeout=None):
        "differs: takes the access token by default, as the header `triton-grpc-protocol-triton-access-token`"
    def get_log_settings(self, headers=None, as_json=False, client_timeout=None):
        "differs: takes the access token by default, as the header `triton-grpc-protocol-triton-access-token`"
    def get_system_shared_memory_status(self, region_name="", headers=None, as_json=False, client_timeout=None):
        "differs: takes the access token by default, as the header `triton-grpc-protocol-triton-access-token`"
    def register_system_shared_memory(self, name, key, byte_size, offset=0, headers=None, client_timeout=None):
        "differs: takes the access token by default, as the header `triton-grpc-protocol-triton-access-token`"
    def unregister_system_shared_memory(self, name="", headers=None, client_timeout=None):
        "differs: takes the access token by default, as the header `triton-grpc-protocol-triton-access-token`"
    def get_cuda_shared_memory_status(self, region_name="", headers=None, as_json=False, client_timeout=None):
        "differs: takes the access token by default, as the header `triton-grpc-protocol-triton-access-token`"
    def register_cuda_shared_memory(self, name, raw_handle, device_id, byte_size, headers=None, client_timeout=None):
        "differs: takes the access token by default, as the header `triton-grpc-protocol-triton-access-token`"
    def unregister_cuda_shared_memory(self, name="", headers=None, client_timeout=None):
        "differs: takes the access token by default, as the header `triton-grpc-protocol-triton-access-token`"
    def infer(
        self,
        model_name,
        inputs,
        model_version="",
        outputs=None,
        request_id="",
        sequence_id=0,
        sequence_start=False,
        sequence_end=False,
        priority=0,
        timeout=None,
        client_timeout=None,
        headers=None,
        compression_algorithm=None,
        parameters=None,
    ): ...
    def stream_infer(self, inputs_iterator, stream_timeout=None, headers=None, compression_algorithm=None): ...
    def register_plugin(self, plugin): ...
    def plugin(self): ...
    def unregister_plugin(self): ...
    def close(self): ...

"tritonclient.grpc.auth"

class BasicAuth:
    def __init__(self, username, password): ...

"tritonclient.utils.shared_memory"

def create_shared_memory_region(triton_shm_name, shm_key, byte_size, create_only=False): ...
def set_shared_memory_region(shm_handle, input_values, offset=0): ...
def get_contents_as_numpy(shm_handle, datatype, shape, offset=0): ...
def mapped_shared_memory_regions(): ...
def destroy_shared_memory_region(shm_handle): ...

"tritonclient.utils.cuda_shared_memory"

def create_shared_memory_region(triton_shm_name, byte_size, device_id): ...
def get_raw_handle(cuda_shm_handle): ...
def set_shared_memory_region(cuda_shm_handle, input_values): ...
def get_contents_as_numpy(cuda_shm_handle, datatype, shape): ...
def destroy_shared_memory_region(cuda_shm_handle): ...
