"""A hosting process of the section ``rest``: other frameworks, whose models answer JSON at ``POST /predict/<model>``.

Usage: ``python others.py (fastapi | fastapi-1 | litserve | bentoml) <HTTP port> <two other ports> <model>...``; SIGTERM
ends it. Each is written as its documentation does it, with two worker processes; ``fastapi-1`` has one. The interpreter
needs the framework and NumPy, not pytriton.
"""

import os
import signal
import sys

import numpy as np
from models import compute, kind

HOST = "127.0.0.1"
QUIET = {"host": HOST, "log_level": "warning", "access_log": False}
WORKERS = 2


def infer(model, values):
    """What a model answers."""
    if kind(model) == "busy":
        compute()
    return {"OUTPUT": (2 * np.asarray(values, np.float32)).tolist()}


def fastapi():
    """The application of FastAPI."""
    from fastapi import FastAPI
    from pydantic import BaseModel

    class Input(BaseModel):
        INPUT: list[float]

    class Output(BaseModel):
        OUTPUT: list[float]

    def route(model):
        async def predict(body: Input) -> Output:
            return Output(**infer(model, body.INPUT))

        return predict

    app = FastAPI()
    for model in os.environ["MODELS"].split():
        app.post(f"/predict/{model}")(route(model))
    return app


def serve_fastapi(port, workers):
    """Serve with uvicorn."""
    import uvicorn

    uvicorn.run("others:fastapi", factory=True, workers=workers, port=port, **QUIET)


def serve_litserve(port, models):
    """Serve with LitServe."""
    import litserve
    from others import Model

    server = litserve.LitServer([Model(api_path=f"/predict/{model}") for model in models], workers_per_device=WORKERS)
    server.run(host=HOST, port=port, generate_client_file=False, log_level="warning")


def lit_api():
    """The class of LitServe's models."""
    import litserve

    class Model(litserve.LitAPI):
        def setup(self, device):
            pass

        def decode_request(self, request):
            return request["INPUT"]

        def predict(self, values):
            return infer(self.api_path.rpartition("/")[2], values)

        def encode_response(self, output):
            return output

    Model.__qualname__ = "Model"  # by which worker processes find it
    return Model


def serve_bentoml(port):
    """Become the process of BentoML."""
    where = ["--host", HOST, "--port", str(port), "--working-dir", sys.path[0]]
    os.execv(sys.executable, [sys.executable, "-m", "bentoml", "serve", "others:Served", *where])


def service():
    """The service of BentoML."""
    import bentoml

    def method(model):
        def predict(self, INPUT: list[float]) -> dict:
            return infer(model, INPUT)

        predict.__name__ = kind(model)
        return bentoml.api(route=f"/predict/{model}")(predict)

    methods = {kind(model): method(model) for model in os.environ["MODELS"].split()}
    return bentoml.service(workers=WORKERS, logging={"access": {"enabled": False}})(type("Served", (), methods))


def __getattr__(name):  # each needs its framework
    made = {"Model": lit_api, "Served": service}
    if name not in made:
        raise AttributeError(name)
    globals()[name] = made[name]()
    return globals()[name]


def main():
    """Serve until a signal."""
    framework, port, models = sys.argv[1], int(sys.argv[2]), sys.argv[5:]
    os.environ["MODELS"] = " ".join(models)  # for worker processes
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # uvicorn sends itself the signal again at its end
    if framework == "litserve":
        serve_litserve(port, models)
    elif framework == "bentoml":
        serve_bentoml(port)
    else:
        serve_fastapi(port, 1 if framework == "fastapi-1" else WORKERS)


if __name__ == "__main__":
    main()
