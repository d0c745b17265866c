"""A hosting process of the section ``composition``: callables that call models, as each system's documentation does it.

Usage: ``python chained.py (ours | loopback | raw | ray | bentoml) <HTTP port> <two other ports> <model>...``; SIGTERM
ends it. All serve ``one``, which answers with its input, ``nested``, which calls it, and ``chain``, which calls three
such models one after the other; ``ours`` also what only it has. ``loopback`` is pytriton whose callables call by
clients. The interpreter needs the system alone; ``ray`` has a replica for each model, and ``bentoml`` a worker.
"""

import os
import shutil
import signal
import sys
import tempfile
from functools import cache, partial
from pathlib import Path
from threading import get_ident

HOST = "127.0.0.1"
STEPS = ("one", "two", "three")
CALLED = {"nested": STEPS[:1], "chain": STEPS}
MOST_ONGOING = 128  # requests to a replica of Ray
ROWS = 128


def serve_pytriton(ports, by_clients):
    """Serve with pytriton; the handles of callables, or clients in their place."""
    import numpy as np

    from pytriton import ModelClient, ModelConfig, ModelHandle, Pipeline, Shadow, Split, Step, Tensor, Triton, batch
    from pytriton.triton import TritonConfig

    @batch
    def echo(x):
        return {"x": x}

    @batch
    def nested(x, one: ModelHandle):
        return one(x)

    @batch
    async def coroutine(x, one: ModelHandle):
        return await one(x)

    @batch
    def chain(x, one: ModelHandle, two: ModelHandle, three: ModelHandle):
        return three(two(one(x)["x"])["x"])

    def calling(names):
        clients = cache(lambda thread: [ModelClient(f"http://{HOST}:{ports[0]}", name) for name in names])

        @batch
        def by_client(x):
            for client in clients(get_ident()):
                x = client.infer_batch(x)["x"]
            return {"x": x}

        return by_client

    tensors, config = [Tensor(name="x", shape=(-1,), dtype=np.float32)], ModelConfig(max_batch_size=ROWS)
    addresses = dict.fromkeys(("http_address", "grpc_address", "metrics_address"), HOST)
    numbers = dict(zip(("http_port", "grpc_port", "metrics_port"), ports, strict=True))
    with Triton(config=TritonConfig(**numbers, **addresses)) as triton:
        bind = partial(triton.bind, inputs=tensors, outputs=tensors, config=config)
        for name in STEPS:
            bind(name, echo)
        for name, function in (("nested", nested), ("chain", chain), ("coroutine", coroutine)):
            bind(name, calling(CALLED[name]) if by_clients and name in CALLED else function)
        triton.bind("pipeline", Pipeline("one", "two", Step("three", outputs={"x": "y"})))
        triton.bind("split", Split({"one": 1, "two": 1}))
        triton.bind("shadow", Shadow("one", to="two"))
        triton.serve()


def write_bls(folder, name):
    """Write a model of Triton's Python backend, and whom it calls."""
    (folder / name / "1").mkdir(parents=True)
    tensor = '[{ name: "x" data_type: TYPE_FP32 dims: [-1] }]'
    lines = ['backend: "python"', f"max_batch_size: {ROWS}", f"input {tensor}", f"output {tensor}"]
    lines += ["dynamic_batching {}", "instance_group [{ kind: KIND_CPU count: 1 }]"]
    called = " ".join(CALLED.get(name, ()))
    lines += [f'parameters [{{ key: "calls" value: {{ string_value: "{called}" }} }}]']
    (folder / name / "config.pbtxt").write_text("\n".join(lines))
    shutil.copy(Path(__file__).with_name("bls_model.py"), folder / name / "1" / "model.py")


def ray_deployments(serve):
    """The classes of Ray Serve."""
    from starlette.responses import JSONResponse

    options = {"max_ongoing_requests": MOST_ONGOING, "logging_config": {"enable_access_log": False}}

    @serve.deployment(**options)
    class Echo:
        def step(self, x):
            return x

        async def __call__(self, request):
            return JSONResponse({"x": (await request.json())["x"]})  # with a length, as the load reads it

    @serve.deployment(**options)
    class Calling:
        def __init__(self, *called):
            self.called = called

        async def __call__(self, request):
            x = (await request.json())["x"]
            for each in self.called:
                x = await each.step.remote(x)
            return JSONResponse({"x": x})

    return Echo, Calling


def serve_ray(ports):
    """Serve with Ray Serve, on a cluster of this machine alone."""
    import ray
    from ray import serve

    with tempfile.TemporaryDirectory(dir="/tmp", prefix="ray-") as folder:  # paths of its sockets have to be short
        ray.init(num_cpus=8, include_dashboard=False, logging_level="ERROR", _temp_dir=folder)
        serve.start(
            http_options={"host": HOST, "port": ports[0], "access_log": False},
            logging_config={"enable_access_log": False},
        )
        echo, calling = ray_deployments(serve)
        for name in STEPS[:1]:
            serve.run(echo.bind(), name=name, route_prefix=f"/{name}")
        for name, called in CALLED.items():
            steps = [echo.options(name=each).bind() for each in called]
            serve.run(calling.bind(*steps), name=name, route_prefix=f"/{name}")
        signal.sigwait({signal.SIGTERM})
        serve.shutdown()
        ray.shutdown()


def service():
    """The service of BentoML."""
    import bentoml

    quiet = {"workers": 1, "logging": {"access": {"enabled": False}}}

    def echo(name):
        class Echo:
            @bentoml.api
            def step(self, x: list[float]) -> list[float]:
                return x

        Echo.__name__ = Echo.__qualname__ = name
        return bentoml.service(**quiet)(Echo)

    steps = {name: echo(name) for name in STEPS}

    class Served:
        first, second, third = (bentoml.depends(each) for each in steps.values())

        @bentoml.api(route="/one")
        def one(self, x: list[float]) -> list[float]:
            return x

        @bentoml.api(route="/nested")
        async def nested(self, x: list[float]) -> list[float]:
            return await self.first.to_async.step(x=x)

        @bentoml.api(route="/chain")
        async def chain(self, x: list[float]) -> list[float]:
            for each in (self.first, self.second, self.third):
                x = await each.to_async.step(x=x)
            return x

    Served.__qualname__ = "Served"
    return bentoml.service(**quiet)(Served)


def __getattr__(name):
    """What BentoML imports from here."""
    if name != "Served":
        raise AttributeError(name)
    globals()["Served"] = service()
    return globals()["Served"]


def main():
    """Serve as the command line says."""
    system, ports, models = sys.argv[1], [int(each) for each in sys.argv[2:5]], sys.argv[5:]
    if system in ("ours", "loopback"):
        serve_pytriton(ports, system == "loopback")
    elif system == "raw":
        import raw

        sys.exit(raw.serve(ports, models, write_bls))
    elif system == "ray":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        serve_ray(ports)
    else:
        program = str(Path(sys.executable).with_name("bentoml"))
        where = ["--host", HOST, "--port", str(ports[0]), "--working-dir", sys.path[0]]
        os.execv(program, [program, "serve", "chained:Served", *where])


if __name__ == "__main__":
    main()
