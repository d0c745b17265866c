"""The benchmark runs: its hosts start, answer rightly under load, and leave nothing behind."""

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.either_proxy, pytest.mark.thorough, pytest.mark.timeout(330)]  # on a busy machine

BENCH = Path(__file__).parents[2] / "scripts" / "bench.py"
SOAK = BENCH.with_name("soak.py")


def bench(folder: Path, *arguments: str) -> dict[str, Any]:
    """What the benchmark finds."""
    result = folder / "result.json"
    ran = subprocess.run(
        [sys.executable, str(BENCH), *arguments, "--json", str(result)], capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return json.loads(result.read_text())


def soak(folder: Path, *arguments: str) -> dict[str, Any]:
    """What a soak without problems finds."""
    result = folder / "result.json"
    ran = subprocess.run(
        [sys.executable, str(SOAK), *arguments, "--json", str(result)], capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = json.loads(result.read_text())
    assert found["problems"] == []
    return found


@pytest.mark.parametrize(
    ("system", "callers"),
    [
        ("ours", []),
        ("ours", ["--callers", "nested", "pipeline"]),
        ("raw", ["--callers", "blocking", "raw", "streams"]),
    ],
)
def test_a_short_soak_finds_no_problems(tmp_path, system, callers):
    found = soak(tmp_path, "--minutes", "0.01", "--system", system, *callers)
    assert found["calls"]["right"] > 0
    assert found["failures"] == []
    assert ("right: several at once" in found["calls"]) == (not callers)
    assert all("tritonserver" in sample["rss_bytes"] for life in found["lives"] for sample in life)


@pytest.mark.parametrize("attack", ["kill worker", "stop host", "unbind models"])
def test_a_soak_with_an_attack_finds_no_problems(tmp_path, attack):
    options = ["--minutes", "0.01", "--workers", "1", "--seed", "139", "--back", "30"]
    # Streams that clients stop may end Triton 2.51, which is no fault of the attack.
    options += ["--callers", "blocking", "streams", "--attacks", attack.partition(" ")[0]]
    options += ["--share"] if attack == "stop host" else []
    found = soak(tmp_path, *options)
    assert [each["what"] for each in found["attacks"]] == [attack]
    assert found["calls"]["right"] > 0


@pytest.mark.parametrize("arguments", [["shared", "--mib=64"], ["budget", "--models=2", "--rate=50"]])
def test_the_memory_of_models_is_measured_without_problems(arguments):
    command = [sys.executable, str(BENCH.with_name("model_memory.py")), *arguments, "--minutes=0.02"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert int(ran.stdout.split("right answers")[1].split()[0]) > 0


@pytest.mark.skipif(not shutil.which("c++"), reason="there is no C++ compiler for the backend of the limit")
def test_mixed_requests_are_measured_of_our_python_proxy_of_raw_and_of_the_limit_without_problems(tmp_path):
    found = bench(
        tmp_path,
        *("--sections", "pair", "--only", "p 16 x", "--systems", "python-proxy", "raw", "limit"),
        *("--rounds", "1", "--seconds", "0.2", "--warmup", "0"),
    )
    assert found["problems"] == {"python-proxy": [], "raw": [], "limit": []}
    assert found["systems"]["python-proxy"]["proxy"] == "python"
    loads = [row for row in found["rows"] if row["measure"] == "requests/s"]
    assert [row["group"] for row in loads] == ["http 16 x 1-4 rows, ids, two inputs"]
    assert all(spread["median"] > 0 for row in loads for spread in row["spreads"].values())
    assert all(len(row["spreads"]) == 3 for row in loads)


def test_strings_are_measured_over_both_protocols_without_problems(tmp_path):
    found = bench(
        tmp_path,
        *("--sections", "strings", "--only", " 16 x", "--systems", "ours", "raw"),
        *("--rounds", "1", "--seconds", "0.2", "--warmup", "0"),
    )
    assert found["problems"] == {"ours": [], "raw": []}
    loads = [row for row in found["rows"] if row["measure"] in ("requests/s", "server CPU us")]
    assert len(loads) == 2 * 2
    assert all(spread["median"] > 0 for row in loads for spread in row["spreads"].values())


@pytest.mark.skipif(find_spec("fastapi") is None, reason="FastAPI is not installed")
def test_chats_are_measured_beside_fastapi_without_problems(tmp_path):
    found = bench(
        tmp_path, *("--sections", "openai", "--systems", "ours", "--rounds", "1", "--seconds", "0.2", "--warmup", "0")
    )
    assert found["problems"] == {"ours": [], "fastapi": []}
    assert all(set(row["spreads"]) == {"ours", "fastapi"} for row in found["rows"] if "tokens" in row["measure"])


@pytest.mark.skipif(not all(map(find_spec, ("skops", "mlflow", "onnx"))), reason="a library of a format is missing")
def test_files_of_onnx_are_measured_beside_the_python_backend_without_problems(tmp_path):
    found = bench(
        tmp_path,
        *("--sections", "saved", "--systems", "ours", "--only", "ONNX, 2 x 1000"),
        *("--rounds", "1", "--seconds", "0.2", "--warmup", "0"),
    )
    assert found["problems"] == {"ours": [], "raw": []}
    groups = {row["group"]: row["spreads"] for row in found["rows"] if "errors" not in row["measure"]}
    assert groups.keys() == {"ONNX, start", "ONNX, 2 x 1000 rows"}
    assert all(spreads.keys() == {"ours", "raw"} for spreads in groups.values())


def test_clients_streams_and_churn_are_measured_without_problems(tmp_path):
    found = bench(
        tmp_path,
        *("--sections", "clients", "streams", "churn", "--systems", "ours"),
        *("--rounds", "1", "--seconds", "0.2", "--warmup", "0", "--clients", "2"),
    )
    assert found["problems"] == {"ours": [], "tritonclient": []}
    values = {(row["group"], row["measure"]): row["spreads"] for row in found["rows"]}
    for measured in (
        ("ModelClient, http 1 x 64 B", "requests/s"),
        ("ModelClient, grpc 1 x 64 B", "requests/s"),
        ("AsyncioModelClient, http 64 x 64 B", "requests/s"),
        ("AsyncioModelClient, grpc 64 x 64 B", "requests/s"),
        ("stream of 500 x 64 B to tritonclient", "responses/s"),
        ("stream of 500 x 64 B from ours to DecoupledModelClient", "responses/s"),
    ):
        assert values[measured]["ours"]["median"] > 0
    assert values["ModelClient, grpc 1 x 64 B", "p50 us"]["tritonclient"]["median"] > 0
    sockets = [spreads["ours"]["median"] for (_, measure), spreads in values.items() if measure == "sockets after"]
    assert len(sockets) == 8
