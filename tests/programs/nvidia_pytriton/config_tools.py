"""Model configurations written, read and compared without a server."""
import json, os, sys, tempfile
from pathlib import Path
import numpy as np
from pytriton.exceptions import PyTritonBadParameterError, PyTritonError, PyTritonModelConfigError, PyTritonValidationError
from pytriton.model_config import DeviceKind, DynamicBatcher, ModelConfig, QueuePolicy, Tensor, TimeoutAction
from pytriton.model_config.generator import ModelConfigGenerator
from pytriton.model_config.model_config import ModelConfig as MC
from pytriton.model_config.parser import ModelConfigParser
from pytriton.model_config.tensor import Tensor as T
from pytriton.model_config.triton_model_config import ResponseCache, TensorSpec, TritonModelConfig
from pytriton.server.triton_server_config import TritonServerConfig
from pytriton.triton import TritonConfig

assert MC is ModelConfig and T is Tensor
config = TritonModelConfig(
    model_name="simple",
    batching=True,
    max_batch_size=16,
    batcher=DynamicBatcher(
        preferred_batch_size=[16, 32][:1], max_queue_delay_microseconds=100, preserve_ordering=True, priority_levels=3,
        default_priority_level=1,
        default_queue_policy=QueuePolicy(timeout_action=TimeoutAction.DELAY, allow_timeout_override=True),
        priority_queue_policy={2: QueuePolicy(default_timeout_microseconds=100, max_queue_size=3)},
    ),
    instance_group={DeviceKind.KIND_CPU: 1, DeviceKind.KIND_GPU: 2},
    decoupled=True,
    backend_parameters={"parameter1": "value1"},
    inputs=[TensorSpec(name="INPUT_1", dtype=np.float32, shape=(-1,)), TensorSpec("INPUT_2", (-1,), np.bytes_, optional=True)],
    outputs=[TensorSpec(name="OUTPUT_1", dtype=np.int32, shape=(1000,))],
    response_cache=ResponseCache(enable=True),
)
d = ModelConfigGenerator(config=config).get_config()
print(d["name"], d["max_batch_size"], d["dynamic_batching"]["preferredBatchSize"], d["input"][1])
path = Path(tempfile.mkdtemp()) / "simple" / "config.pbtxt"
message = ModelConfigGenerator(config=config).to_file(path)
print(message.name, path.exists())
again = ModelConfigParser.from_file(config_path=path)
print(again == config, ModelConfigParser.from_dict(d) == config, config.backend)
config.max_batch_size = 0
try:
    ModelConfigGenerator(config).get_config()
except PyTritonBadParameterError as e:
    print("bad max_batch_size")
try:
    ModelConfigParser.from_dict({"name": "x", "input": [{"name": "y"}]})
except PyTritonModelConfigError as e:
    print("model config error")

c = TritonConfig.from_dict({"http_port": "8000", "nonsense": 1, "cache_config": ["local,size=1"]})
print(c.http_port, c.cache_config, c.to_dict()["grpc_port"])
os.environ["PYTRITON_TRITON_CONFIG_GRPC_PORT"] = "45436"
os.environ["PYTRITON_TRITON_CONFIG_TRACE_CONFIG_0"] = "level=TIMESTAMPS"
e = TritonConfig.from_env()
print(e.grpc_port, e.trace_config)
for bad in (lambda: TritonConfig(allow_http=False, allow_grpc=False), lambda: TritonConfig(8000), lambda: TritonConfig(nope=1)):
    try:
        bad()
    except (PyTritonValidationError, TypeError) as ex:
        print(type(ex).__name__)
s = TritonServerConfig()
s["model-repository"] = "/models"
s["log_verbose"] = 1
print(s["model_repository"], s["http-port"], "log-verbose" in s, "http_port" in s, s.to_cli_string())
try:
    s["nope"] = 1
except PyTritonError as ex:
    print("PyTritonError")
