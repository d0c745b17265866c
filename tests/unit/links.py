"""A proxy and its workers in one process, on a real socket, between a scripted backend and real callables."""

from __future__ import annotations

import importlib
import json
import sys
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pytriton.cluster.options import ProxyListener
from pytriton.decorators.batching import whole_batch_form
from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from pytriton.worker.context import Binding, TritonContext
from pytriton.worker.inference import Inference, Options
from pytriton.worker.instance import Instance, make_executor
from tests.server.processes import wait_for
from tests.unit import backend
from tests.unit.backend import InferenceRequest

CONFIG = TritonModelConfig(
    "m",
    inputs=[TensorSpec("x", (-1,), np.float32), TensorSpec("s", (-1,), np.bytes_, optional=True)],
    outputs=[TensorSpec("y", (-1,), np.float32)],
)
BOTH = replace(CONFIG, outputs=[*CONFIG.outputs, TensorSpec("z", (-1,), np.bytes_)])
"""With a second output."""


@contextmanager
def imported_proxy():
    """The proxy's module ``model``, imported as in the backend's stub, and patient when it connects again."""
    with pytest.MonkeyPatch.context() as patch:
        backend.install(patch)
        module = importlib.import_module("pytriton.python_proxy.model")
        patch.setattr(module, "adapt", lambda *_: None)  # else this process' NumPy would be changed
        patch.setattr(module, "lend_inputs", lambda: None)
        patch.setattr(module, "gc", SimpleNamespace(collect=int, freeze=int))  # this process has more than a proxy
        patch.setattr(importlib.import_module("pytriton.wire.connect"), "RECONNECT_TIMEOUT_S", 10.0)
        yield module
    # those that have imported the scripted backend
    for name in ("codec", "concurrent", "model", "pending", "serial"):
        del sys.modules[f"pytriton.python_proxy.{name}"]


class Link:
    """A proxy in a folder, and the workers that it finds there.

    Args:
        module: The proxy's module ``model``.
        folder: Empty.
        batches_in_flight: Most batches that the proxy hands over before it waits; None is one at a time.
        relayed: Whether the proxy is as on another machine.
    """

    def __init__(self, module, folder, batches_in_flight=None, relayed=False):
        self.module, self.folder = module, folder
        self.several = batches_in_flight is not None
        self.path = folder / "7.3"
        self.workers = []
        self.model = None
        self.endpoint = {"folder": str(folder), "prefix": "7", "batches_in_flight": batches_in_flight}
        (folder / "1").mkdir()
        self.relay = None
        if relayed:
            relay = pytest.importorskip("pytriton.cluster.relay")
            self.relay = relay.ProxyRelay(ProxyListener("tcp://127.0.0.1:0"), folder)
            del self.endpoint["folder"]
            self.endpoint["remote"] = self.relay.description

    def work(self, function, config=CONFIG, options=None):
        """Start a worker."""
        whole_batch = whole_batch_form(function)
        inference = Inference(function, config, options or Options(), lambda: None, whole_batch)
        executor = make_executor(function, inference, self.several, "loop")
        binding = Binding(function, config, TritonContext())
        self.workers.append(Instance(str(self.path), binding, executor, lambda: None))
        return self.workers[-1]

    def connect(self, config=CONFIG):
        """Start the proxy, as the server does."""
        model = self.module.TritonPythonModel()
        described = {
            "name": "m",
            "instance_group": [{"name": "m_0", "count": 4}],
            "max_batch_size": config.max_batch_size,
            "input": [{"name": spec.name, "dims": list(spec.shape)} for spec in config.inputs],
            "output": [{"name": spec.name} for spec in config.outputs],
            "model_transaction_policy": {"decoupled": config.decoupled},
        }
        arguments = {"model_name": "m", "model_instance_name": "m_0_3", "model_version": "1"}
        arguments["model_instance_device_id"] = "0"
        sides = {side: [item["name"] for item in described[side]] for side in ("input", "output")}
        bound = {"callables": 4, "batching": config.batching, "decoupled": config.decoupled, **sides}
        (self.folder / "1" / "endpoint.json").write_text(json.dumps({**self.endpoint, "bound": bound}))
        folder = {"model_repository": str(self.folder), "model_config": json.dumps(described)}
        model.initialize({**arguments, **folder})
        self.model = model

    def serve(self, function, config=CONFIG, **options):
        self.work(function, config, Options(**options))
        self.connect(config)

    def end_worker(self):
        self.workers[-1].close()
        wait_for(lambda: not self.workers[-1].is_connected(), "the worker to end its connection")

    def infer(self, *requests, **fields):
        """Outputs of requests that are given as dicts, or the messages of their errors."""
        return outcomes(self.model.execute([InferenceRequest(inputs, **fields) for inputs in requests]))

    def end(self):
        """End the proxy, then its workers."""
        if self.model:
            self.model.finalize()
        while self.workers:
            self.end_worker()
            self.workers.pop()
        if self.relay:
            self.relay.close()


def outcomes(responses):
    return [
        response.error.message if response.error else {name: y.tolist() for name, y in response.outputs.items()}
        for response in responses
    ]
