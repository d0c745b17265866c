"""Sets every option that there is, one by one, the long way."""
import argparse
import os
import sys
import tempfile

from pytriton.inprocess import *

parser = argparse.ArgumentParser()
parser.add_argument("models")
parser.add_argument("-v", "--verbose", action="count", default=0)
FLAGS = parser.parse_args()

scratch = tempfile.mkdtemp()
options = Options(FLAGS.models)
options.server_id = "tour"
options.model_control_mode = ModelControlMode.EXPLICIT
options.startup_models = ["params"]
options.strict_model_config = False
options.rate_limiter_mode = RateLimitMode.OFF
if options.rate_limiter_mode != RateLimitMode.EXEC_COUNT:
    options.rate_limiter_mode = RateLimitMode.EXEC_COUNT
options.rate_limiter_resources = [RateLimiterResource("R1", 4, -1), RateLimiterResource(name="R2", count=2, device=0)]
options.pinned_memory_pool_size = 1 << 20
options.cuda_memory_pool_sizes = {0: 1 << 20}
options.cache_config = {"local": {"size": 1048576}}
options.cache_directory = "/opt/tritonserver/caches"
options.min_supported_compute_capability = 6.0
options.exit_on_error = True
options.strict_readiness = True
options.exit_timeout = 5
options.buffer_manager_thread_count = 2
options.model_load_thread_count = 2
options.model_load_retry_count = 1
options.model_namespacing = False
options.enable_peer_access = True
options.log_file = os.path.join(scratch, "triton.log")
options.log_info = True
options.log_warn = True
options.log_error = True
options.log_format = LogFormat.DEFAULT if FLAGS.verbose > 3 else LogFormat.ISO8601
options.log_verbose = FLAGS.verbose
options.metrics = True
options.gpu_metrics = False
options.cpu_metrics = True
options.metrics_interval = 1000
options.backend_directory = "/opt/tritonserver/backends"
options.repo_agent_directory = "/opt/tritonserver/repoagents"
options.model_load_device_limits = [ModelLoadDeviceLimit(InstanceGroupKind.GPU, 0, 0.9)]
options.backend_configuration = {"python": {"shm-default-byte-size": "4194304"}}
options.host_policies = {"cpu_0": {"numa-node": "0"}}
options.metrics_configuration = {"": {"summary_latencies": "false"}}

server = Server(options)
try:
    server.ready()
    print("ready before start")
    sys.exit(1)
except InvalidArgumentError as e:
    print("not started:", e)
server.start(wait_until_ready=True, polling_interval=0.05, timeout=60)
assert server.options.server_id == "tour"
print("server", server.metadata()["name"], "live", server.live(), "ready", server.ready())
print("extensions", len(server.metadata()["extensions"]) > 5)
for key in sorted(server.models()):
    m = server.models()[key]
    print(key, m.state, m.reason)
print("loaded:", [m.name for m in server.models(exclude_not_ready=True).values()])
text = server.metrics(MetricFormat.PROMETHEUS)
print("metrics:", "nv_inference_request_success" in text, "nv_cpu_utilization" in text)
try:
    server.start()
except TritonError as e:
    print(type(e).__name__, e)
server.stop()
log = open(options.log_file).read()
print("log:", "successfully loaded 'params'" in log, log[:1] == "2")
