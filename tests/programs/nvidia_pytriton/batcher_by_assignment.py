"""Configuration objects are made first and filled in later, as the flags come."""
import sys
import numpy as np
from pytriton.client import ModelClient
from pytriton.decorators import batch
from pytriton.exceptions import PyTritonBadParameterError, PyTritonError
from pytriton.model_config import DeviceKind, DynamicBatcher, ModelConfig, QueuePolicy, Tensor, TimeoutAction
from pytriton.model_config.common import ModelWarmup, WarmupInput
from pytriton.triton import Triton, TritonConfig

config = TritonConfig()
config.http_port, config.grpc_port, config.metrics_port = map(int, sys.argv[1:])
config.http_thread_count = 4
config.log_verbose = 0

policy = QueuePolicy()
policy.timeout_action = TimeoutAction.DELAY
policy.max_queue_size = 100
policy.allow_timeout_override = True
policy.default_timeout_microseconds = 1000000

batcher = DynamicBatcher()
batcher.max_queue_delay_microseconds = 500
batcher.preferred_batch_size = [4]
batcher.preferred_batch_size.append(8)
batcher.preserve_ordering = False
batcher.priority_levels = 3
batcher.default_priority_level = 2
batcher.default_queue_policy = policy
batcher.priority_queue_policy = {1: QueuePolicy(max_queue_size=5)}
batcher.priority_queue_policy[3] = policy

t_in = Tensor(name="x", dtype=np.float32, shape=(-1,))
t_out = Tensor(shape=(-1,), dtype=np.float32)
t_out.name = "y"
warm = WarmupInput(dtype=np.float32, shape=(3,))
warm.random_data = True
warmup = ModelWarmup("warm", 1, {}, 1)
warmup.inputs["x"] = warm
warmup.batch_size = 2
warmup.count = 3

model_config = ModelConfig()
model_config.max_batch_size = 8
model_config.batcher = batcher
model_config.model_warmup = [warmup]

rows = []


@batch
def fn(x):
    rows.append(len(x))
    return [x + 1]


with Triton(config=config) as triton:
    triton.bind("inc", fn, [t_in], [t_out], config=model_config)
    model_config.max_batch_size = 1    # too late for "inc"
    batcher.preferred_batch_size.append(1000)
    triton.run()
    with ModelClient("localhost:%d" % config.http_port, "inc") as c:
        print(c.infer_batch(np.zeros((8, 3), np.float32))["y"].sum(), c.model_config.max_batch_size)
        print(c.model_config.batcher.preferred_batch_size, c.model_config.batcher.priority_queue_policy[3].timeout_action)
    print("warm-up rows:", rows[:3])

    # the same messages as when they are made
    bad = DynamicBatcher(); bad.preferred_batch_size = 4
    for change in ({"max_batch_size": 0}, {"batcher": bad}, {"max_batch_size": "16"}, {"batcher": 5}):
        mc = ModelConfig()
        for k, v in change.items():
            setattr(mc, k, v)
        try:
            triton.bind("bad", fn, [t_in], [t_out], config=mc)
            print("accepted", change)
        except PyTritonError as e:
            print(type(e).__name__)
    try:
        triton.bind("bad", fn, [t_in], [t_out], config=ModelConfig(batcher=DynamicBatcher(preserve_ordering=True, priority_levels=2, default_priority_level=1)))
    except PyTritonBadParameterError as e:
        print("ordering", "preserve_ordering" in e.message)
    t_in.dtype = "complex64"
    try:
        triton.bind("bad", fn, [t_in], [t_out])
    except PyTritonBadParameterError as e:
        print("dtype", "complex64" in str(e))
config.http_port = "no port"
try:
    Triton(config=config)
except PyTritonError as e:
    print("http_port" in e.message)
