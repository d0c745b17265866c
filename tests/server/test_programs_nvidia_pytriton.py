"""Whole programs for nvidia-pytriton, as people write them, run unchanged and print what they should."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import dedent

import pytest

from tests.server.ports import reserved_ports

pytestmark = [pytest.mark.either_proxy, pytest.mark.thorough]

PROGRAMS = Path(__file__).parents[1] / "programs" / "nvidia_pytriton"
DEADLINE_S = 100
FLAGS = {
    "linear_random": ("--http-port", "--grpc-port", "--metrics-port"),
    "decoupled_streaming": ("--http-port", "--grpc-port", "--metrics-port"),
    "remote": ("--http-port", "--grpc-port", "--metrics-port"),
    "multi_instance": ("--port", "--grpc", "--metrics"),
}
WITHOUT_PORTS = ("config_tools", "notebook", "test_my_model")
OUTPUTS = {
    "asyncio_gather": """
        10100.0
        no input
        mixed
        [-3.]
        True
        64 True
    """,
    "async_callables": """
        sleepy 4 [0.0, 2.0, 4.0, 6.0, 8.0] [2.0, 2.0]
        batched 16 [0.0, 3.0, 6.0, 9.0, 12.0] [3.0, 3.0]
        object 4 [0.0, 4.0, 8.0, 12.0, 16.0] [4.0, 4.0]
        sleepy 4 [0.0, 2.0, 4.0, 6.0, 8.0] [2.0, 2.0]
        batched 16 [0.0, 3.0, 6.0, 9.0, 12.0] [3.0, 3.0]
        object 4 [0.0, 4.0, 8.0, 12.0, 16.0] [4.0, 4.0]
    """,
    "batcher_by_assignment": """
        24.0 8
        [4, 8] TimeoutAction.DELAY
        warm-up rows: [2, 2, 2]
        PyTritonBadParameterError
        PyTritonBadParameterError
        PyTritonBadParameterError
        PyTritonBadParameterError
        ordering True
        dtype True
        True
    """,
    "batching_decorators": """
        reserved
        [] ['generate'] True 3
        [4. 2. 4.]
    """,
    "config_tools": """
        simple 16 [16] {'name': 'INPUT_2', 'dims': [-1], 'data_type': 'TYPE_STRING', 'optional': True}
        simple True
        True True python
        bad max_batch_size
        model config error
        8000 ['local,size=1'] None
        45436 ['level=TIMESTAMPS']
        PyTritonValidationError
        TypeError
        TypeError
        /models None True False --model-repository=/models --log-verbose=1
        PyTritonError
    """,
    "decoupled_streaming": """
        sync [b'one']
        sync [b'two']
        sync [b'three']
        batch ["x", "z"]
        batch ["y", ""]
        async [b'tok0']
        async [b'tok1']
        async [b'tok2']
        coupled: PyTritonClientInferenceServerError
    """,
    "errors_and_recovery": """
        [2.0] True [3.0]
        PyTritonClientInferenceServerError
        not there True
        url True
        PyTritonClientInferenceServerError
        closed
        serving: False False
    """,
    "futures_queue": """
        [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, [[2.0], [2.0]]]
        slow
        closed
        [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, [[2.0], [2.0]]]
        slow
        closed
        full: True True
        BaseException
    """,
    "headers_and_parameters": """
        [1.0, 2.0] [2.0, 4.0]
        ValueError
        [('b', True), ('divisor', '7'), ('n', 1), ('s', 't'), ('x-user', 'ada')]
        [1.0, 2.0] [2.0, 4.0]
        ValueError
        [('b', True), ('divisor', '7'), ('n', 1), ('s', 't'), ('x-user', 'ada')]
        [[2.0, 4.0], [1.0, 2.0], [0.6666666865348816, 1.3333333730697632], [0.5, 1.0]]
    """,
    "identity": """
        PASS 34
    """,
    "linear_random": """
        model Linear 128 ['data']
        PASS: 6 calls
    """,
    "model_store": """
        8000 127.0.0.1 [] triton-access-token
        True True
        True True
        bad endpoint
        alive False
        alive True True ['m']
        43 True
        True None
        [1.0, 1.0]
        [1.0, 1.0]
        m True
        ModelState.READY
        True
        grpc localhost 9 grpc://localhost:9 localhost:9 <latest>
        False
    """,
    "multi_instance": """
        True ['cpu', 'cuda:0', 'cuda:1', 'cuda:2']
    """,
    "multi_model": """
        twice: PyTritonInvalidOperationError
        1 [6.0, 8.0]
        2 [60.0, 80.0]
        None [60.0, 80.0]
        [b'first', b'first']
        [b'second', b'second']
        {'n': array([1, 4])} False
    """,
    "notebook": """
        stopped: False False
        [2.0, 3.0] True
        False
        [10.0, 20.0]
        False
    """,
    "remote": """
        alive True True
        [42.0]
        alive True True
        [8.0]
        exit code 0
    """,
    "strict_validation": """
        wrong_dtype refused
        wrong_shape refused
        wrong_name refused
        fine {'y': array([1., 1.], dtype=float32)}
        validation True
        validation True
        validation True
        validation True
        validation True
        validation True
        invalid operation
        bad parameter
        .......
    """,
    "strings_and_halves": """
        upper object ['ZAŻÓŁĆ', 'HELLO WORLD']
        [b'ONE']
        title object ['Zażółć', 'Hello World']
        [b'One']
        [b'object' b'bytes']
        [0.5 1.  1.5] float16 [1.0, 2.0, 3.0]
        upper object ['ZAŻÓŁĆ', 'HELLO WORLD']
        [b'ONE']
        title object ['Zażółć', 'Hello World']
        [b'One']
        [b'object' b'bytes']
        [0.5 1.  1.5] float16 [1.0, 2.0, 3.0]
    """,
    "test_my_model": "",
    "warmup": """
        (3, 2)
        2
        no source
        ((1, 4), 'float32', (1, 1), True)
        ((1, 4), 'float32', (1, 1), True)
        ((2, 4), 'float32', (2, 1), False)
        [4.]
    """,
}
SERVED_ELSEWHERE = {"add_sub_server", "add_sub_client", "serve_in_thread"}  # which have tests of their own
CLIENTS = [path.stem for path in sorted(PROGRAMS.glob("client_*.py"))]  # on servers of their own


@pytest.fixture
def ports() -> Iterator[list[int]]:
    with reserved_ports(3) as ports:
        yield ports


@pytest.fixture
def environment(tmp_path: Path, ports: Sequence[int]) -> dict[str, str]:
    """What ``Triton()`` takes from the environment; the server's log is in a file, not among the program's output."""
    http, grpc, metrics = map(str, ports)
    options = {"HTTP_PORT": http, "GRPC_PORT": grpc, "METRICS_PORT": metrics}
    options |= {"HTTP_ADDRESS": "127.0.0.1", "GRPC_ADDRESS": "127.0.0.1", "LOG_FILE": str(tmp_path / "server.log")}
    ours = {f"PYTRITON_TRITON_CONFIG_{name}": value for name, value in options.items()}
    return os.environ | ours | {"PYTRITON_HOME": str(tmp_path), "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}


def run(name: str, arguments: Sequence[object], environment: dict[str, str]) -> str:
    """The output of a program that ends by itself; its exit status must be 0."""
    command = [sys.executable, PROGRAMS / f"{name}.py", *map(str, arguments)]
    if name == "config_tools":
        environment = {key: value for key, value in environment.items() if "TRITON_CONFIG" not in key}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_program_runs_unchanged(name, ports, environment):
    arguments: list[object] = [] if name in WITHOUT_PORTS else [*ports]
    if name in FLAGS:
        arguments = [each for pair in zip(FLAGS[name], ports, strict=True) for each in pair]
    assert run(name, arguments, environment) == dedent(OUTPUTS[name]).lstrip("\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_program_serves_clients_until_a_signal(ports, environment, number):
    command = [sys.executable, PROGRAMS / "add_sub_server.py", *map(str, ports)]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as server:
        try:
            for url in (f"localhost:{ports[0]}", f"grpc://localhost:{ports[1]}"):
                assert run("add_sub_client", ["--url", url], environment).splitlines() == [
                    "add [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]",
                    "sub [[-1.0, 0.0, 1.0], [2.0, 3.0, 4.0]]",
                    "too large: True",
                ]
            server.send_signal(number)
            output, _ = server.communicate(timeout=DEADLINE_S)
        finally:
            server.kill()
    assert server.returncode == 0, output
    assert f"{number.name} received, exiting." in output
    assert output.endswith("bye, alive: False\n")


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_a_program_that_signals_itself_ends_well(ports, environment, number):
    output = run("serve_in_thread", [*ports, number], environment)
    assert "Infer function available as model: `/v2/models/m`" in output
    assert f"{number} received, exiting." in output
    assert output.endswith("served [2, 3, 4] False\n")


@pytest.mark.parametrize("name", CLIENTS)
def test_a_program_of_clients_that_serves_its_own_models_prints_what_it_says(environment, name):
    printed = run(name, [], environment).splitlines()
    said = re.findall(r"^# prints: (.*)$", (PROGRAMS / f"{name}.py").read_text(), re.MULTILINE)
    assert said
    assert [line for line in said if line not in printed] == []


def test_every_program_is_run():
    assert {path.stem for path in PROGRAMS.glob("*.py")} == OUTPUTS.keys() | SERVED_ELSEWHERE | {*CLIENTS}


DOCUMENTED_NAMES = """
    Triton RemoteTriton TritonConfig TritonContext TritonLifecyclePolicy DefaultTritonLifecyclePolicy
    VertextAILifecyclePolicy TritonSecurityConfig VALID_TRITON_ENDPOINTS DEFAULT_PROTECTED_ENDPOINTS
    TRITON_ACCESS_HEADER
    ModelConfig Tensor DeviceKind DynamicBatcher QueuePolicy TimeoutAction ModelWarmup WarmupInput generate_warmup_data
    generate_warmup_requests TritonModelConfig TensorSpec ResponseCache ModelConfigGenerator ModelConfigParser
    batch sample group_by_keys group_by_values fill_optionals first_value pad_batch triton_context ConstantPadder
    ModelConfigDict convert_output get_inference_request_batch_size get_model_config get_triton_context
    ModelClient AsyncioModelClient FuturesModelClient DecoupledModelClient AsyncioDecoupledModelClient
    create_auth_headers extract_access_token_from_headers TritonUrl create_client_from_url ModelState get_model_state
    wait_for_server_ready wait_for_model_ready parse_http_response parse_grpc_response LATEST_MODEL_VERSION
    asyncio_get_model_state asyncio_get_model_config asyncio_wait_for_server_ready asyncio_wait_for_model_status_loaded
    asyncio_wait_for_model_ready DEFAULT_HTTP_PORT TRITON_LOCAL_IP TRITON_CONTEXT_FIELD_NAME Request Response
    TritonResultsValidator Workspace TritonServerConfig PyTritonError PyTritonValidationError
    PyTritonInvalidOperationError PyTritonBadParameterError PyTritonModelConfigError PyTritonUnrecoverableError
    PyTritonRuntimeError PyTritonClientError PyTritonClientValueError PyTritonClientInvalidUrlError
    PyTritonClientTimeoutError PyTritonClientModelUnavailableError PyTritonClientClosedError
    PyTritonClientModelDoesntSupportBatchingError PyTritonClientInferenceServerError PyTritonClientQueueFullError
"""


def test_the_programs_between_them_use_every_documented_name():
    text = "\n".join(path.read_text() for path in PROGRAMS.glob("*.py"))
    assert [name for name in DOCUMENTED_NAMES.split() if not re.search(rf"\b{name}\b", text)] == []
