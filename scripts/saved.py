"""The section ``saved``: files of models behind ``pytriton serve`` and behind what else serves such files.

As a program, ``saved.py SYSTEM http --port 8080 --rows 1 --connections 16``, it puts a load of JSON on a system of
``hosts/saved.py``, each in the protocol of its own, and prints a line of JSON. Answers are checked before and after.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from connections import HttpConnection
from hosts import BenchError, Host, System
from load import whole_requests
from payloads import HOST, LoadError
from rounds import Run, order

__all__ = ["LOADS", "SERVED", "ask", "measure", "request"]

NAME = "iris"
LOADS = ((1, 1), (1, 16), (1, 64), (1000, 2))  # rows of a request, connections
SERVED = {  # by format: systems and the files that they serve; loading in a plain interpreter
    "scikit-learn": ({"ours": "iris.skops", "mlserver": "iris.joblib"}, "import skops.io; skops.io.load('iris.skops')"),
    "MLflow": ({"ours": "mlflow", "mlflow": "mlflow"}, "import mlflow.pyfunc; mlflow.pyfunc.load_model('mlflow')"),
    "ONNX": (
        dict.fromkeys(("ours", "raw", "litserve", "bentoml"), "iris.onnx"),
        "import onnxruntime; onnxruntime.InferenceSession('iris.onnx')",
    ),
}
OURS = ("ours", "raw")  # under our interpreter
ROW = [5.1, 3.5, 1.4, 0.2]  # of the class 0
_PATHS = {
    "ours": f"/predict/{NAME}",
    "mlflow": "/invocations",
    **dict.fromkeys(("mlserver", "raw"), f"/v2/models/{NAME}/infer"),
}
_HOSTS = Path(__file__).with_name("hosts")


def request(system: str, port: int, rows: int) -> bytes:
    """A whole request of rows of four numbers in the protocol of a system."""
    body: dict[str, Any] = {"features": [ROW] * rows}
    if system == "ours":
        body = {"features": ROW} if rows == 1 else {"instances": [{"features": ROW}] * rows}
    elif system == "mlflow":
        body = {"inputs": [ROW] * rows}
    elif system in ("mlserver", "raw"):
        dtype = "FP32" if system == "raw" else "FP64"
        body = {"inputs": [{"name": "features", "datatype": dtype, "shape": [rows, 4], "data": ROW * rows}]}
    content, path = (
        json.dumps(body).encode(),
        _PATHS.get(system, f"/predict/{NAME}" if system == "ours" else "/predict"),
    )
    head = f"POST {path} HTTP/1.1\r\nHost: {HOST}:{port}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


def ask(system: str, rows: int, port: int) -> None:
    """Send a request once; raises LoadError unless each row is of the class 0."""
    with closing(HttpConnection(port, [request(system, port, rows)])) as connection:
        _, body = connection.fetch()
    if _labels(json.loads(body)) != [0] * rows:
        raise LoadError(f"{system} answers {body[:200]!r}")


def _labels(answer: Any) -> list[Any]:
    """The labels in an answer of any of the systems."""
    if isinstance(answer, list):
        return [label for each in answer for label in _labels(each)]
    if isinstance(answer, dict):
        outputs = answer.get("outputs")
        return _labels(outputs[0]["data"] if outputs else next(iter(answer.values())))
    return [answer]


def measure(run: Run) -> None:
    """Each file on each system that serves it, on hosts of their own; each round begins with another."""
    files = run.folder / "files"
    files.mkdir(parents=True)
    _python(run.system, files, str(_HOSTS / "saved_files.py"))
    for title, (served, loading) in SERVED.items():
        if not any(run.plan.only in _title(title, *load) for load in LOADS):
            continue
        began = time.perf_counter()
        _python(run.system, files, "-c", loading)
        load_s = time.perf_counter() - began
        there = [name for name in served if name in (*OURS, *run.plan.peers)]
        if missing := [name for name in served if name not in there]:
            run.plan.say(f"{title}: without {', '.join(missing)}, as --peers names no interpreter")
        for system in order([_system(run, name, files / served[name]) for name in there], run.number):
            try:
                _measure(run, title, system, load_s)
            except BenchError as error:  # which keeps no other system from being measured
                run.round_of(system.name).problems.append(f"{title}: {error}")


def _measure(run: Run, title: str, system: System, load_s: float) -> None:
    folder = run.folder / f"{title}-{system.name}"
    with Host(system, folder, [NAME]) as run.host:
        first_s = run.host.wait_first_answer(partial(ask, system.name, 1))
        times = {"first answer s": first_s, "less import and load s": first_s - load_s}
        run.put(f"{title}, start", times, system.name)
        for rows, connections in LOADS:
            if run.plan.only in _title(title, rows, connections):
                options = {"rows": rows, "connections": connections}
                found = run.program(run.system, "saved.py", system.name, "http", **options)
                del found["answered"]
                run.put(_title(title, rows, connections), found, system.name)
        (folder / "tmp" / ".ses").unlink(missing_ok=True)  # onnxruntime leaves it
        run.stop(run.host, name=system.name)


def _title(title: str, rows: int, connections: int) -> str:
    return f"{title}, {connections} x {rows} rows"


def _system(run: Run, name: str, file: Path) -> System:
    python = run.plan.peers.get(name, run.system.command[0])
    environment = dict(run.system.environment)
    if name not in OURS:
        environment.pop("PYTHONPATH", None)
    script = str(_HOSTS / "saved.py")
    return System(name, [python, script, name, str(file)], environment, {})


def _python(system: System, folder: Path, *program: str) -> None:
    command = [system.command[0], *program]
    ran = subprocess.run(command, cwd=folder, env=system.environment, capture_output=True, text=True)
    if ran.returncode:
        raise BenchError(f"the section saved needs the extras sklearn, onnx and mlflow, and onnx:\n{ran.stderr}")


def main() -> None:
    """Put the load on, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system")
    parser.add_argument("protocol", choices=["http"])
    for option, kind in {"port": int, "rows": int, "connections": int, "seconds": float, "warmup": float}.items():
        parser.add_argument(f"--{option}", type=kind, required=True)
    chosen = parser.parse_args()
    requests = [request(chosen.system, chosen.port, chosen.rows)]
    ask(chosen.system, chosen.rows, chosen.port)
    found = whole_requests(chosen.port, requests, chosen.connections, chosen.warmup, chosen.seconds)
    ask(chosen.system, chosen.rows, chosen.port)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
