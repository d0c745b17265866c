"""The native proxy's sources with sanitizers, beside a small server and workers that misbehave (``tests/native``)."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from pytriton.composition.traffic_file import TrafficFile
from tests.native.predictions import LEFT, Application, Generator, configurations

SOURCE = Path(__file__).parent
CORPUS = SOURCE.parent / "fuzz" / "corpus"
ROUNDS = 30_000
BATCHES = 1_000
REQUESTS = 300
PREDICTIONS = 4_000
ADDRESSES, THREADS = "address,undefined", "thread"
LIMIT_S = 600  # compiling and sanitizers are slow while other tests run

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(
        not (shutil.which("cmake") and shutil.which("c++")), reason="there is no cmake or no C++ compiler"
    ),
    pytest.mark.timeout(LIMIT_S),
]
OF_SIMDJSON = ("infer", "predict", "head", "grpc", "h2")  # fuzzers' targets
needs_simdjson = pytest.mark.skipif(
    not (SOURCE.parents[1] / "pytriton/native/vendor/simdjson").exists(), reason="simdjson was not fetched by a build"
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Of builds, by their sanitizers: programs share objects."""
    return {sanitizers: tmp_path_factory.mktemp("native") for sanitizers in (ADDRESSES, THREADS)}


def build(folders: dict[str, Path], target: str, sanitizers: str) -> Path:
    folder = folders[sanitizers]
    commands = [["cmake", "--build", folder, "--target", target, "--parallel", "2"]]
    if not (folder / "CMakeCache.txt").exists():
        commands.insert(0, ["cmake", "-S", SOURCE, "-B", folder, f"-DPYTRITON_SANITIZE={sanitizers}"])
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / target


def run(program: Path, *arguments: object) -> None:
    """In the program's folder, as a socket's path must be short."""
    command = [program, *map(str, arguments)]
    done = subprocess.run(command, cwd=program.parent, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr


def test_damaged_frames_are_refused_and_nothing_beyond_them_is_read(folders):
    run(build(folders, "damaged_frames", ADDRESSES), 1, ROUNDS)


def test_frames_are_written_and_read_as_in_python(folders):
    run(build(folders, "golden_frames", ADDRESSES), SOURCE / "golden_frames.txt")


def test_batches_in_flight_are_answered_or_cancelled_whatever_else_the_worker_has(folders):
    run(build(folders, "batches_in_flight", ADDRESSES), ".")


def test_batches_leave_as_the_scheduler_says(folders):
    run(build(folders, "scheduling", THREADS))


def test_a_latency_target_is_kept_under_each_load_in_simulated_time(folders):
    run(build(folders, "latency_target", ADDRESSES))


@pytest.mark.parametrize(
    "target",
    ["frame", "json", *(pytest.param(name, marks=needs_simdjson) for name in OF_SIMDJSON)],
)
def test_a_fuzzers_target_finds_no_fault_in_its_corpus(folders, target):
    run(build(folders, f"replay_{target}", ADDRESSES), CORPUS / target)


def test_threads_share_nothing_without_a_lock_whatever_a_worker_does(folders):
    run(build(folders, "stress", THREADS), ".", 1, BATCHES)


@pytest.mark.parametrize("sanitizers", [THREADS, ADDRESSES])
def test_pending_requests_share_nothing_without_a_lock_and_leave_nothing_in_memory(folders, sanitizers):
    run(build(folders, "pending_requests", sanitizers), 1, REQUESTS)


@needs_simdjson
def test_requests_over_http_are_read_and_answered(folders):
    run(build(folders, "http_requests", ADDRESSES))


@needs_simdjson
@pytest.mark.parametrize("sanitizers", [THREADS, ADDRESSES])
def test_inferences_share_nothing_without_a_lock_and_leave_nothing_in_memory(folders, sanitizers, tmp_path):
    same = {"version": 1, "targets": ["echo", "echo"]}
    shadowed = {**same, "model": "shadow", "kind": "shadow", "priority": 0, "rtol": 1e-5, "atol": 1e-8}
    split = TrafficFile(tmp_path / "split.traffic", {**same, "model": "split", "kind": "split", "by": None}, [1, 2], 2)
    shadow = TrafficFile(tmp_path / "shadow.traffic", shadowed, [1, 1], 4)
    for file in (split, shadow):
        file.open(True)
    run(build(folders, "inferences", sanitizers), REQUESTS, tmp_path)
    assert all(split.counts())
    assert shadow.counts()[0]  # that were the same


@needs_simdjson
@pytest.mark.parametrize("sanitizers", [THREADS, ADDRESSES])
def test_the_edge_survives_its_clients_and_the_process_behind_it(folders, sanitizers):
    run(build(folders, "edge", sanitizers), REQUESTS // 10)


@needs_simdjson
@pytest.mark.parametrize("sanitizers", [THREADS, ADDRESSES])
def test_grpc_at_the_edge_survives_its_clients(folders, sanitizers):
    run(build(folders, "grpc_edge", sanitizers), REQUESTS // 20)


@needs_simdjson
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")  # in the application
def test_predictions_are_those_of_the_application_in_the_same_text(folders, tmp_path):
    """What is left to the application needs no comparison: all of some models, and of others less than a sixth."""
    (tmp_path / "models").write_text(configurations(), encoding="utf-8")
    requests = [*Generator(1).bodies(PREDICTIONS)]
    text = "".join(f"{model}\t{body}\n" for model, body in requests)
    program = build(folders, "predictions", ADDRESSES)
    done = subprocess.run([program, tmp_path / "models"], input=text.encode(), capture_output=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    answers = [line.partition(" ") for line in done.stdout.decode().splitlines()]
    application = Application()
    accepted = left = 0
    for (model, body), (status, _, answer) in zip(requests, answers, strict=True):
        expected = application.answer(model, body.encode())
        if model in LEFT:
            assert status == "-" or not any(json.loads(answer).get("predictions", [json.loads(answer)])), (model, body)
            continue
        accepted += expected is not None
        if status == "-":
            left += expected is not None
        else:
            assert (status, answer) == ("200", expected), (model, body)
    assert left < accepted / 6
