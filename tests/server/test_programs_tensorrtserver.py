"""Programs as people wrote them for TensorRT Inference Server 1.8 to 1.15 run unchanged, but for their import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from pytriton.config import TritonConfig
from pytriton.triton import Triton
from tests.server.ports import reserved_ports
from tests.server.tensorrtserver_models import bind_all, bind_counted

pytestmark = [pytest.mark.either_proxy, pytest.mark.thorough]

PROGRAMS = Path(__file__).parents[1] / "programs" / "tensorrtserver"
DEADLINE_S = 90


@pytest.fixture(scope="module", autouse=True)
def models(triton: Triton) -> None:
    bind_all(triton)


class Runner:
    """Runs programs against the module's server.

    Args:
        config: Of the server.
    """

    def __init__(self, config: TritonConfig) -> None:
        self._ports = {"http": config.http_port, "grpc": config.grpc_port}

    def start(self, program: str, protocol: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        address = f"127.0.0.1:{self._ports[protocol]}"
        command = [sys.executable, str(PROGRAMS / f"{program}.py"), *(arg.format(address) for arg in arguments)]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, env=environment, check=False)

    def __call__(self, program: str, protocol: str, *arguments: str) -> str:
        """What a program prints that ends well."""
        done = self.start(program, protocol, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def run(triton_config: TritonConfig) -> Runner:
    return Runner(triton_config)


def lines(printed: str, *wanted: str) -> None:
    """Check that lines were printed, in that order."""
    rest = iter(printed.splitlines())
    for line in wanted:
        assert line in rest, f"{line!r} is missing, or not in its place, in:\n{printed}"


URL = ("-u", "{}")
BOTH = pytest.mark.parametrize("protocol", ["http", "grpc"])
WAYS = pytest.mark.parametrize(
    ("protocol", "options"), [("http", []), ("grpc", []), ("grpc", ["-s"])], ids=["http", "grpc", "stream"]
)


@BOTH
def test_simple_client(run, protocol):
    printed = run("simple_client", protocol, *URL, "-i", protocol, "-H", "x-name: value")
    lines(printed, "Live: True", "Ready: True", "1 + 1 = 2", "1 - 1 = 0", "15 + 1 = 16", "PASS: simple on version 1")
    lines(printed, 'id: "triton"', "ready_state: SERVER_READY")


def test_simple_string_client(run):
    lines(run("simple_string_client", "http", *URL), "86 bytes of strings", "b'3' + 1 = 4", "PASS: simple_string")


@pytest.mark.parametrize("contexts", [[], ["-1", "-o", "50"]], ids=["two contexts", "one context"])
def test_simple_sequence_client(run, contexts):
    lines(run("simple_sequence_client", "grpc", *URL, *contexts), "[0] 11 : -11", "[6] 29 : -29", "PASS: Sequence")


@pytest.mark.parametrize(
    ("protocol", "options"), [("http", []), ("http", ["-a"]), ("grpc", ["-a", "--streaming"])], ids=str
)
def test_image_client(run, tmp_path, protocol, options):
    for name, color in (("a", (200, 0, 0)), ("b", (0, 0, 100)), ("c", (0, 150, 0))):
        Image.new("RGB", (8, 8), color).save(tmp_path / f"{name}.png")
    options = ["-i", protocol, "-m", "resnet50", "-b", "2", "-c", "2", *options, str(tmp_path)]
    printed = run("image_client", protocol, *URL, *options)
    assert printed.count("Image ") == 4
    lines(printed, "Request 0, batch size 2", "Request 1, batch size 2")
    for name, label, value in (("a", "0 (RED)", 200), ("b", "2 (BLUE)", 100), ("c", "1 (GREEN)", 150)):
        assert f"Image '{name}.png':\n    {label} = {value}.0\n" in printed


@WAYS
def test_simple_callback_client(run, protocol, options):
    done = run.start("simple_callback_client", protocol, *URL, "-i", protocol, *options)
    assert (done.stdout, done.returncode) == ("PASS: 13 callbacks\n", 0), done.stderr
    assert done.stderr.count("Traceback") == 1
    assert "RuntimeError: this callback is broken" in done.stderr


@WAYS
def test_simple_shm_client(run, protocol, options):
    printed = run("simple_shm_client", protocol, *URL, "-i", protocol, *options)
    lines(printed, "15 + 1 = 16", "shared_memory_region {", '  name: "input0_data"', "PASS: shm")


@WAYS
def test_shm_batches(run, protocol, options):
    lines(
        run("shm_batches", protocol, *URL, "-i", protocol, *options),
        "batch of 4 last [-30, -27, -24, -21]",
        "strings ['0', '2', '4', '6'] b'0'",
        "PASS shm_batches",
    )


@pytest.mark.parametrize(("protocol", "number"), [("http", "0"), ("grpc", "1")])
def test_health_poller(run, protocol, number):
    with reserved_ports(1) as (port,):
        printed = run("health_poller", protocol, *URL, "-i", number, "-d", f"127.0.0.1:{port}")
    lines(printed, "up, request True", "down: InferenceServerException True None True", "PASS: health")


@BOTH
def test_status_dumper(run, triton, protocol):
    model = f"counted_{protocol}"
    bind_counted(triton, model)
    lines(
        run("status_dumper", protocol, *URL, "-i", protocol, "-m", model),
        "uptime 0",
        "  repository_stats 0 0",
        f"model {model} max batch 4 platform ''",
        "  tensor x TYPE_FP32 [-1]",
        "  version 1 MODEL_READY",
        "    reason ''",
        "    last True",
        "    executions 5 inferences 7",
        "    batch 1 success 3 failed 0 compute 3 queue 3",
        "    batch 2 success 2 failed 0 compute 2 queue 2",
        "code SUCCESS True",
        "success {   count: 1   total_time_ns: 2 } ",
        "index True True",
        "PASS status",
    )


@BOTH
def test_model_control(run, protocol):
    lines(
        run("model_control", protocol, *URL, "-i", protocol),
        "loaded: 3.0",
        "refused: True",
        "reason: unloaded",
        "again: 3.0",
        "unknown: True True",
        "listed: 1",
        "PASS model_control",
    )


@WAYS
def test_perf_loop(run, protocol, options):
    lines(run("perf_loop", protocol, *URL, "-i", protocol, *options), "PASS: 60 requests of batch 8")


def test_py2_style(run):
    lines(run("py2_style", "http", *URL), "a 0 0", "b 2 0", "c 4 0", "None 8", "PASS: py2_style")


def test_ensemble_client(run):
    lines(
        run("ensemble_client", "grpc", *URL, "-i", "GRPC"),
        "1,5,3,2 [(1, 5.0), (2, 3.0)]",
        "9,0,0,1 [(0, 9.0), (3, 1.0)]",
        "PASS: ensemble",
    )


@BOTH
def test_custom_batch0(run, protocol):
    lines(
        run("custom_batch0", protocol, "{}", protocol),
        "int custom_nobatch 1 True",
        "NoneType custom_nobatch 1 True",
        "int64 custom_nobatch 1 True",
        "1 (16,)",
        "2 (0, 0.0, None)",
        "PASS: custom",
    )


@WAYS
def test_varsize_strings(run, protocol, options):
    lines(
        run("varsize_strings", protocol, *URL, "-i", protocol, *options),
        "100 object (100, 3)",
        "[b'a', b'bcd']",
        "[b'a', b'bcd']",
        "PASS: varsize",
    )


@BOTH
def test_last_request(run, protocol):
    lines(
        run("last_request", protocol, *URL, "-i", protocol),
        "[0, 1, 2, 3, 4, 5, 6, 7, 8]",
        "ids differ: True",
        "simple 1 True",
        "closed: this InferContext is closed; make a new one",
        "before: None",
        "after: True",
        "PASS: last_request",
    )


@BOTH
def test_errors(run, protocol):
    printed = run("errors", protocol, *URL, "-i", protocol)
    lines(printed, "unknown model -> ok", "unknown version -> ok", "None", "[2.0, 2.0, 2.0, 2.0]", "PASS: errors")
    died = run.start("errors", protocol, *URL, "-i", protocol, "--die")
    assert died.returncode == 1
    assert died.stderr.count("Traceback") == 1
    assert died.stderr.endswith("InferenceServerException: too small\n")


def test_stream_mix(run):
    lines(
        run("stream_mix", "grpc", *URL),
        "sync in between: 1.0",
        "in order: True",
        "sync error: too small None",
        f"{2**64 - 1} [1, 2, 3, 4]",
        f"{2**63} [10, 20, 30, 40]",
        "5 [100, 200, 300, 400]",
        "corr id now: 5",
        "threads left: 0",
        "PASS: stream_mix",
    )


@WAYS
def test_correlation_ids(run, protocol, options):
    printed = run("correlation_ids", protocol, "{}", protocol, *options)
    lines(printed, "7", "0 -> 7", f"{2**64 - 1} -> {2**64 - 1}", f"async {2**64 - 1}", "PASS: correlation_ids")


def test_every_program_is_run():
    text = Path(__file__).read_text()
    assert [path.stem for path in PROGRAMS.glob("*.py") if f'"{path.stem}"' not in text] == []
