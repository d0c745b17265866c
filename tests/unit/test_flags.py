from dataclasses import fields
from pathlib import Path

from pytriton.config import TritonConfig
from pytriton.server.flags import flags

ACCEPTED_BY_THE_SERVER = """
    --id --exit-timeout-secs --log-verbose --log-info --log-warning --log-error --log-format --log-file
    --model-store --model-repository --exit-on-error --disable-auto-complete-config --strict-readiness
    --model-control-mode --repository-poll-secs --load-model --model-config-name --model-load-thread-count
    --model-load-retry-count --model-namespacing --enable-peer-access --allow-http --http-address --http-port
    --reuse-http-port --http-header-forward-pattern --http-thread-count --http-restricted-api --allow-grpc
    --grpc-address --grpc-port --reuse-grpc-port --grpc-header-forward-pattern --grpc-infer-allocation-pool-size
    --grpc-use-ssl --grpc-use-ssl-mutual --grpc-server-cert --grpc-server-key --grpc-root-cert
    --grpc-infer-response-compression-level --grpc-keepalive-time --grpc-keepalive-timeout
    --grpc-keepalive-permit-without-calls --grpc-http2-max-pings-without-data
    --grpc-http2-min-recv-ping-interval-without-data --grpc-http2-max-ping-strikes --grpc-max-connection-age
    --grpc-max-connection-age-grace --grpc-restricted-protocol --allow-sagemaker --sagemaker-port
    --sagemaker-safe-port-range --sagemaker-thread-count --allow-vertex-ai --vertex-ai-port
    --vertex-ai-thread-count --vertex-ai-default-model --allow-metrics --allow-gpu-metrics --allow-cpu-metrics
    --metrics-address --metrics-port --metrics-interval-ms --metrics-config --trace-config --backend-directory
    --backend-config --repoagent-directory --cache-config --cache-directory --rate-limit --rate-limit-resource
    --pinned-memory-pool-byte-size --cuda-memory-pool-byte-size --cuda-virtual-address-size
    --min-supported-compute-capability --buffer-manager-thread-count --host-policy --model-load-gpu-limit
    --strict-model-config --response-cache-byte-size --trace-file --trace-level --trace-rate --trace-count
    --trace-log-frequency
"""
"""Printed by ``tritonserver --help``, version 2.51."""


def test_every_field_is_a_flag_that_the_server_accepts():
    everything = {option.name: "1" for option in fields(TritonConfig)}
    names = [argument.partition("=")[0] for argument in flags(TritonConfig(**everything))]
    assert len(names) == len(everything)
    assert set(names) <= set(ACCEPTED_BY_THE_SERVER.split())


def test_no_field_set_gives_no_flag():
    assert flags(TritonConfig()) == []


def test_booleans_are_written_as_words_and_zero_is_not_left_out():
    config = TritonConfig(allow_http=True, allow_metrics=False, log_verbose=0)
    assert flags(config) == ["--log-verbose=0", "--allow-http=True", "--allow-metrics=False"]


def test_a_list_repeats_its_flag():
    config = TritonConfig(cache_config=["local,size=1", "redis,host=h"], metrics_config=[])
    assert flags(config) == ["--cache-config=local,size=1", "--cache-config=redis,host=h"]


def test_values_with_spaces_and_equal_signs_stay_one_argument():
    config = TritonConfig(log_file=Path("/my logs/a=b.log"), http_header_forward_pattern="(a b|c).*")
    assert flags(config) == ["--log-file=/my logs/a=b.log", "--http-header-forward-pattern=(a b|c).*"]
