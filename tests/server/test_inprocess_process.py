"""What a server does to the process that it is in; each has a process of its own here."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytriton.utils.workspace import Workspace
from tests.server.inprocess_repository import ECHO, write_echo, write_model
from tests.server.processes import DEADLINE_S, descendants
from tests.server.proxies import native_part_only

pytestmark = [pytest.mark.either_proxy, native_part_only]


def run(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", program, *arguments]
    environment = {**os.environ, **environment}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=110, env=environment, cwd=Path(__file__).parents[2]
    )


def test_a_server_takes_every_option_together_with_the_others(tmp_path: Path):
    done = run(  # in a process of its own, as the log is one process's
        "import sys\n"
        "from pytriton.inprocess import *\n"
        "options = Options(\n"
        "    model_repository=[sys.argv[1]], model_control_mode=ModelControlMode.EXPLICIT, startup_models=['*'],\n"
        "    strict_model_config=False, rate_limiter_mode=RateLimitMode.EXEC_COUNT,\n"
        "    rate_limiter_resources=[RateLimiterResource('r', 3)], pinned_memory_pool_size=1 << 20,\n"
        "    cuda_memory_pool_sizes={0: 1 << 20}, cache_config={'local': {'size': 1 << 20}},\n"
        "    min_supported_compute_capability=7.0, exit_on_error=False, strict_readiness=False, exit_timeout=5,\n"
        "    buffer_manager_thread_count=1, model_load_thread_count=1, model_load_retry_count=1,\n"
        "    model_namespacing=True, enable_peer_access=False, log_file=sys.argv[2], log_info=True,\n"
        "    log_format=LogFormat.ISO8601, log_verbose=1, gpu_metrics=False, cpu_metrics=False,\n"
        "    metrics_interval=1000, repo_agent_directory=sys.argv[1],\n"
        "    model_load_device_limits=[ModelLoadDeviceLimit(InstanceGroupKind.GPU, 0, 0.5)],\n"
        "    backend_configuration={'': {'default-max-batch-size': '5'}, 'python': {'unknown': '5'}},\n"
        "    host_policies={'policy': {'numa-node': '0'}},\n"
        "    metrics_configuration={'': {'summary_latencies': 'true'}})\n"
        "with Server(options) as server: print(server.ready())",
        str(tmp_path),
        str(tmp_path / "log"),
    )
    assert done.stdout == "True\n", done.stderr
    log = (tmp_path / "log").read_text()
    assert re.match(r"\d{4}-\d\d-\d\dT", log)
    assert re.search(r"[Cc]ache.*local", log)


def test_a_forgotten_server_stops(tmp_path: Path):
    done = run(
        "import sys, threading\n"
        "from pytriton.inprocess import Server\n"
        "Server(model_repository=sys.argv[1], log_info=True).start()\n"
        "for thread in threading.enumerate():\n"
        "    if thread.name == 'pytriton-inprocess-stop': thread.join()\n"
        "print('THE END', file=sys.stderr)\n",
        str(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    assert "All models are stopped" in done.stderr.partition("THE END")[0]


def test_a_server_that_runs_when_the_interpreter_ends_is_stopped(tmp_path: Path):
    write_echo(tmp_path)
    done = run(
        "import sys\nfrom pytriton.inprocess import Server\n"
        "server = Server(model_repository=sys.argv[1], log_info=True).start()",
        str(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    assert "successfully unloaded 'echo'" in done.stderr


def test_shared_memory_of_a_killed_process_is_removed_by_the_next_one(tmp_path: Path):
    write_echo(tmp_path)
    program = (
        "import os, signal, sys\nfrom pytriton.inprocess import Server\n"
        "server = Server(model_repository=sys.argv[1]).start()\n"
        "name = server.handle._workspace.shared_memory_prefix\n"
        "print([*filter(lambda region: region.startswith(name), os.listdir('/dev/shm'))], flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdout
        regions = ast.literal_eval(process.stdout.readline())
        process.wait(DEADLINE_S)  # without it, the model's process finds its parent and goes on
    assert regions  # which the servers of other tests may remove as well
    Workspace().clean()
    assert not {*regions} & {*os.listdir("/dev/shm")}


def test_a_stop_that_fails_leaves_no_shared_memory(tmp_path: Path):
    write_model(
        tmp_path,
        "waiting",
        ECHO.replace("responses = []", "time.sleep(1000)"),
        'input { name: "in" data_type: TYPE_FP32 dims: [1] }\noutput { name: "out" data_type: TYPE_FP32 dims: [1] }',
    )
    program = (
        "import os, signal, sys\nimport numpy as np\n"
        "from pytriton.inprocess import Server, TritonError\n"
        "server = Server(model_repository=sys.argv[1], exit_timeout=0).start()\n"
        "name = server.handle._workspace.shared_memory_prefix\n"
        "def regions(): return len([*filter(lambda region: region.startswith(name), os.listdir('/dev/shm'))])\n"
        "before = regions()\n"
        "responses = server.model('waiting').infer(inputs={'in': np.zeros(1, np.float32)})\n"
        "try: server.stop()\n"
        "except TritonError as error: print(before, regions(), error, flush=True)\n"
        "for pid in sys.stdin.readline().split(): os.kill(int(pid), signal.SIGKILL)\n"
        "os._exit(0)"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdout
        told = process.stdout.readline()
        process.communicate(" ".join(map(str, descendants(process.pid))))  # the model's process, which sleeps
    assert told == "1 0 Exit timeout expired. Exiting immediately.\n"


def test_other_libraries_of_the_process_see_nothing_of_the_server(tmp_path: Path):
    """They would call its companions: Python's ssl the OpenSSL that comes with the server, for one."""
    done = run(
        "import ctypes, sys\nfrom pytriton.inprocess import Server\n"
        "with Server(model_repository=sys.argv[1]):\n"
        "    names = 'TRITONSERVER_ServerNew', 'nghttp2_version', 'cudaGetDeviceCount', 'curl_easy_init'\n"
        "    print([name for name in names if hasattr(ctypes.CDLL(None), name)])",
        str(tmp_path),
    )
    assert done.stdout == "[]\n", done.stderr


def test_without_a_server_library_the_error_says_how_to_get_one(tmp_path: Path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tritonserver").touch()
    done = run(
        "import os, sys\nos.environ['TRITONSERVER_HOME'] = sys.argv[1]\nfrom pytriton.inprocess import Server\n"
        "Server(model_repository=sys.argv[1]).start()",
        str(tmp_path),
    )
    assert "UnavailableError" in done.stderr
    assert "holds no libtritonserver.so" in done.stderr


def test_nothing_is_loaded_before_a_server_starts():
    program = "import pytriton.inprocess\nprint('tritonserver' in open('/proc/self/maps').read())"
    assert run(program).stdout == "False\n"


def test_models_are_loaded_beside_open_channels_of_grpc(tmp_path: Path):
    """Which abort the process if threads of the server's fork it at once."""
    for name in ("one", "two", "three"):
        write_echo(tmp_path, name)
    done = run(
        "import grpc, sys\nfrom pytriton.inprocess import Server\n"
        "channel = grpc.insecure_channel('127.0.0.1:1')\n"
        "changed = []\n"
        "channel.subscribe(changed.append, try_to_connect=True)\n"
        "while len(changed) < 2: pass\n"
        "for _ in range(3):\n"
        "    with Server(model_repository=sys.argv[1], exit_on_error=True): pass\n"
        "channel.close()",
        str(tmp_path),
    )
    assert done.returncode == 0, done.stderr


def test_without_metrics_their_text_is_empty(tmp_path: Path):
    done = run(  # in a process of its own, as metrics are one process's
        "import sys\nfrom pytriton.inprocess import Server\n"
        "with Server(model_repository=sys.argv[1], metrics=False) as server: print(repr(server.metrics()))",
        str(tmp_path),
    )
    assert done.stdout == "''\n", done.stderr


@pytest.mark.parametrize(
    "path", ["a" * 256, "a/" * 2042 + "x", "99999999999999999999/model.py"], ids=["name", "path", "version"]
)
def test_a_file_that_the_server_cannot_write_does_not_end_the_process(tmp_path: Path, path: str):
    done = run(
        "import sys\nfrom pytriton.inprocess import *\n"
        "with Server(model_repository=sys.argv[1], model_control_mode=ModelControlMode.EXPLICIT) as server:\n"
        "    try: server.load('m', {'config': '{\"backend\": \"python\"}', 'file:' + sys.argv[2]: b''})\n"
        "    except InvalidArgumentError as error: print(server.ready())",
        str(tmp_path),
        path,
    )
    assert done.stdout == "True\n", done.stderr


@pytest.fixture(scope="module")
def german(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment with a locale in which numbers have a decimal comma."""
    folder = tmp_path_factory.mktemp("locales")
    compiler = shutil.which("localedef")
    if compiler is None or not Path("/usr/share/i18n/locales/de_DE").is_file():
        pytest.skip("no locale can be made here: localedef, or its sources, are missing")
    subprocess.run([compiler, "-i", "de_DE", "-f", "UTF-8", folder / "de_DE.UTF-8"], check=True)
    return {"LOCPATH": str(folder)}


def test_a_locale_with_a_decimal_comma_changes_nothing(german: dict[str, str]):
    done = run(
        "import locale, time\n"
        "import numpy as np\n"
        "from pytriton.inprocess import Triton\n"
        "from tests.server.inprocess_models import Models, first, row\n"
        "locale.setlocale(locale.LC_ALL, 'de_DE.UTF-8')\n"
        "assert locale.str(0.5) == '0,5'\n"
        "def infer(requests):\n"
        "    (request,) = requests\n"
        "    print(request.parameters, 50 < request.deadline - time.monotonic() <= 60)\n"
        "    return [{'y': request['x']}]\n"
        "with Triton() as triton:\n"
        "    models = Models(triton)\n"
        "    name = models.bind(infer, max_batch_size=4)\n"
        "    numbers = {'half': 0.5, 'large': 1e300, 'small': -1.25e-300, 'whole': 3.0}\n"
        "    print(first(next(models.send(name, row(1.5), parameters=numbers, timeout=60_000_000))))",
        **german,
    )
    half, answer = done.stdout.splitlines() or ["", done.stderr]
    assert half == "{'half': 0.5, 'large': 1e+300, 'small': -1.25e-300, 'whole': 3.0} True"
    assert answer == "1.5"


def test_the_wait_before_an_unload_is_for_this_version_of_the_server_whose_threads_sleep(tmp_path: Path):
    """See "Magic" in docs/architecture.md for what to check when another version is bundled."""
    write_echo(tmp_path)
    done = run(
        "import sys\nimport numpy as np\n"
        "from pytriton.inprocess import Server, handle\n"
        "handle.WAIT_LIMIT_S = 30.0\n"
        "with Server(model_repository=sys.argv[1]) as server:\n"
        "    for _ in range(10): next(server.model('echo').infer(inputs={'in_FP32': np.ones((1, 3), np.float32)}))\n"
        "    threads = len([*handle.thread_states('self')])\n"
        "    version = server.metadata()['version']\n"
        "    print(version == handle.SERVER_VERSION, threads > 1, handle.wait_until_threads_sleep())",
        str(tmp_path),
    )
    assert done.stdout == "True True True\n", done.stderr
