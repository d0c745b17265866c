"""A hosting process of the section ``saved``: a file of a saved model, served as the documentation of each system does.

Usage: ``python saved.py (ours | raw | mlflow | mlserver | litserve | bentoml) <file> <HTTP port> <two other ports>
<model>``; SIGTERM ends it. The interpreter needs the system alone; all but ``ours`` and ``raw`` have two worker
processes. ``scripts/saved.py`` knows what each of them is asked.
"""

import json
import os
import signal
import socket
import sys
from functools import partial
from pathlib import Path

HOST = "127.0.0.1"
WORKERS = 2
VARIABLE = "BENCH_SAVED"  # the file, for worker processes


def become(command, *arguments, **environment):
    """Become a command of this interpreter's environment."""
    program = str(Path(sys.executable).with_name(command))
    os.environ["PATH"] = f"{Path(program).parent}{os.pathsep}{os.environ['PATH']}"
    os.execve(program, [program, *map(str, arguments)], os.environ | environment)


def serve_mlserver(file, ports, name):
    """Write the two files of settings beside each other, and start the server on their folder."""
    model = {"name": name, "implementation": "mlserver_sklearn.SKLearnModel", "parameters": {"uri": file}}
    settings = dict(zip(("http_port", "grpc_port", "metrics_port"), ports, strict=True))
    settings |= {"host": HOST, "parallel_workers": WORKERS, "metrics_dir": os.environ["TMPDIR"]}
    Path("model-settings.json").write_text(json.dumps(model))
    Path("settings.json").write_text(json.dumps(settings))
    become("mlserver", "start", ".")


def session():
    """The model in onnxruntime, with a thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(os.environ[VARIABLE], options)


def labels(model, rows):
    """What the model answers to rows."""
    import numpy as np

    return {"label": model.run(None, {"features": np.asarray(rows, np.float32)})[0].tolist()}


def lit_api():
    """The class of LitServe."""
    import litserve

    class Model(litserve.LitAPI):
        def setup(self, device):
            self.model = session()

        def decode_request(self, request):
            return request["features"]

        def predict(self, rows):
            return labels(self.model, rows)

        def encode_response(self, output):
            return output

    Model.__qualname__ = "Model"  # by which worker processes find it
    return Model


def service():
    """The service of BentoML."""
    import bentoml

    class Served:
        def __init__(self):
            self.model = session()

        @bentoml.api(route="/predict")
        def predict(self, features: list[list[float]]) -> dict:
            return labels(self.model, features)

    Served.__qualname__ = "Served"
    return bentoml.service(workers=WORKERS, logging={"access": {"enabled": False}})(Served)


def __getattr__(name):  # each needs its framework
    made = {"Model": lit_api, "Served": service}
    if name not in made:
        raise AttributeError(name)
    globals()[name] = made[name]()
    return globals()[name]


def main():
    """Serve until a signal."""
    system, file, ports, name = sys.argv[1], sys.argv[2], sys.argv[3:6], sys.argv[6]
    os.environ[VARIABLE] = file
    port = ports[0]
    if system == "ours":
        with socket.create_server((HOST, 0)) as free:
            numbers = dict(zip(("rest", "http", "grpc", "metrics"), [*ports, free.getsockname()[1]], strict=True))
        listen = [f"--{kind}-port={number}" for kind, number in numbers.items()]
        become("pytriton", "serve", f"{name}={file}", "--trust", f"--address={HOST}", *listen)
    elif system == "mlflow":
        where = ["--host", HOST, "--port", port, "--workers", WORKERS]
        become("mlflow", "models", "serve", "--model-uri", file, "--env-manager", "local", *where)
    elif system == "mlserver":
        serve_mlserver(file, ports, name)
    elif system == "bentoml":
        where = ["--host", HOST, "--port", port, "--working-dir", sys.path[0]]
        become("bentoml", "serve", "saved:Served", *where)
    elif system == "litserve":
        import litserve
        from saved import Model

        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        server = litserve.LitServer(Model(api_path="/predict"), workers_per_device=WORKERS)
        server.run(host=HOST, port=int(port), generate_client_file=False, log_level="warning")
    else:
        import raw

        sys.exit(raw.serve([int(each) for each in ports], [name], partial(raw.write_onnx, file=file)))


if __name__ == "__main__":
    main()
