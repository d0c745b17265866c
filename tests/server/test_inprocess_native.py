"""A model of our own backend, which finds the functions of the server within this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytriton.decorators import TritonContext, batch
from pytriton.inprocess import InternalError, ModelControlMode, Server
from pytriton.model import Model
from pytriton.model_config import ModelConfig, Tensor
from pytriton.model_spec import describe
from pytriton.pool.pool import ServedModel
from pytriton.pool.threads import workers_of
from pytriton.worker.inference import Options
from pytriton.worker.observation import Observation
from tests.server.proxies import native_part_only

pytestmark = [pytest.mark.either_proxy, native_part_only]


@batch
def double(x: Any) -> dict[str, Any]:
    if (x < 0).any():
        raise ValueError("negative on purpose")
    return {"y": 2 * x}


def test_a_callable_of_this_process_serves_a_server_of_this_process(tmp_path: Path):
    store = tmp_path / "store"
    store.mkdir()
    tensors = [Tensor(name="x", shape=(-1,), dtype=np.float32)], [Tensor(name="y", shape=(-1,), dtype=np.float32)]
    config = describe("double", 1, *tensors, ModelConfig(), 1)
    bound = Model(workers_of(double), ServedModel(config, TritonContext(), Options(), Observation()), native=True)
    bound.start(store, tmp_path / "socket", lambda model: None, lambda: None)
    try:
        with Server(model_repository=str(store), model_control_mode=ModelControlMode.EXPLICIT) as server:
            model = server.load("double")
            assert model.config()["backend"] == "pytriton"
            pending = [model.infer(inputs={"x": np.full((1, 3), number, np.float32)}) for number in range(100)]
            results = [np.from_dlpack(next(each).outputs["y"]).tolist() for each in pending]
            assert results == [[[2.0 * number] * 3] for number in range(100)]
            with pytest.raises(InternalError, match="negative on purpose"):
                next(model.infer(inputs={"x": np.full((1, 3), -1, np.float32)}))
    finally:
        bound.close()
