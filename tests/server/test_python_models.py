"""Models of Triton's Python backend in a repository of the user's own: what they compute, with any NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytriton import client, inprocess
from pytriton.server import backends
from pytriton.triton import Triton
from tests.server.conftest import local_config
from tests.server.inprocess_repository import HEAD, write_echo, write_model
from tests.server.own_server import address
from tests.server.proxies import native_part_only

pytestmark = [pytest.mark.either_proxy, native_part_only]

Ask = Callable[..., Any]
ARRAYS = {
    "BOOL": np.array([[True, False, False, True]]),
    **{
        kind: np.array([[3, 2, 1, 0]], dtype)
        for kind, dtype in {
            "UINT8": np.uint8,
            "UINT16": np.uint16,
            "UINT32": np.uint32,
            "UINT64": np.uint64,
            "INT8": np.int8,
            "INT16": np.int16,
            "INT32": np.int32,
            "INT64": np.int64,
            "FP16": np.float16,
            "FP32": np.float32,
            "FP64": np.float64,
        }.items()
    },
    "STRING": np.array([[b"ab\0", b"", "ä".encode(), b"\0"]], object),
}
NUMBERS = [kind for kind in ARRAYS if kind != "STRING"]
TENSORS = "\n".join(
    f'input {{ name: "in_{kind}" data_type: TYPE_{kind} dims: [-1] optional: true }}\n'
    f'output {{ name: "out_{kind}" data_type: TYPE_{kind} dims: [-1] }}'
    for kind in ARRAYS
)
XY = 'input { name: "x" data_type: TYPE_INT64 dims: [-1] } output { name: "y" data_type: TYPE_INT64 dims: [-1] }'
PLAIN = f"""
import json
import numpy as np
{HEAD}
        return [self.answer(request, json.loads(request.parameters())["how"]) for request in requests]

    def answer(self, request, how):
        return pb_utils.InferenceResponse(
            [getattr(self, how)(each.name().replace("in_", "out_"), each) for each in request.inputs()]
        )

    def reverse(self, name, tensor):
        return pb_utils.Tensor(name, tensor.as_numpy()[:, ::-1])

    def lend(self, name, tensor):
        return pb_utils.Tensor.from_dlpack(name, tensor.to_dlpack())

    def export(self, name, tensor):
        array = tensor.as_numpy() * 2
        return pb_utils.Tensor.from_dlpack(name, array if array.shape[1] != 4 else array.__dlpack__())

    def sum(self, name, tensor):
        return pb_utils.Tensor(name, tensor.as_numpy().sum(axis=1, keepdims=True))

    def texts(self, name, tensor):
        return pb_utils.Tensor(name, np.array([[text.decode(), text] for text in tensor.as_numpy()[0]], object))

    def fixed(self, name, tensor):
        return pb_utils.Tensor(name, tensor.as_numpy().astype(np.bytes_))
"""
ASK = f"""{HEAD}
        return [self.asked(get(request, "x").as_numpy()) for request in requests]

    def asked(self, x):
        inner = pb_utils.InferenceRequest(
            model_name="plain",
            requested_output_names=["out_INT64"],
            inputs=[pb_utils.Tensor("in_INT64", x)],
            parameters={{"how": "sum"}},
        )
        response = inner.exec()
        if response.has_error():
            raise RuntimeError(response.error().message())
        y = pb_utils.get_output_tensor_by_name(response, "out_INT64").as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("y", y + x)])
"""
COUNT = f"""
import threading
{HEAD}
        for request in requests:
            arguments = request.get_response_sender(), get(request, "x").as_numpy()
            threading.Thread(target=self.send, args=arguments).start()

    def send(self, sender, x):
        for number in range(20):
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("y", x + number)]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
MODELS = {
    "plain": (PLAIN, TENSORS),
    "ask": (ASK, XY),
    "count": (COUNT, f"{XY} model_transaction_policy {{ decoupled: true }}"),
}


def over_a_network(repository: Path) -> Any:
    @contextmanager
    def served() -> Iterator[Ask]:
        with local_config() as config, Triton(config=replace(config, model_repository=repository)):
            yield lambda kind, model: getattr(client, kind)(address(config, "grpc"), model)

    return served()


def in_this_process(repository: Path) -> Any:
    @contextmanager
    def served() -> Iterator[Ask]:
        with inprocess.Server(model_repository=str(repository)) as server:
            yield lambda kind, model: getattr(inprocess, kind)(server, model)

    return served()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    for name, (source, configuration) in MODELS.items():
        write_model(folder, name, source, f"max_batch_size: 4 {configuration}")
    return folder


@pytest.fixture(scope="module", params=[over_a_network, in_this_process])
def connect(request: pytest.FixtureRequest, repository: Path) -> Iterator[Ask]:
    with request.param(repository) as connect:
        yield connect


def compute(connect: Ask, how: str, **inputs: Any) -> Any:
    with connect("ModelClient", "plain") as client:
        return client.infer_batch(parameters={"how": how}, **inputs)


@pytest.mark.parametrize("kind", ARRAYS)
def test_a_model_gets_and_gives_arrays_of_every_dtype(connect: Ask, kind: str):
    given = ARRAYS[kind]
    y = compute(connect, "reverse", **{f"in_{kind}": given})[f"out_{kind}"]
    assert y.tolist() == given[:, ::-1].tolist()
    assert y.dtype == given.dtype


def test_a_model_gets_and_gives_arrays_without_elements(connect: Ask):
    given = {f"in_{kind}": array[:, :0] for kind, array in ARRAYS.items()}
    assert {y.shape for y in compute(connect, "reverse", **given).values()} == {(1, 0)}


def test_a_model_computes_with_all_elements(connect: Ask):
    assert compute(connect, "sum", in_INT64=np.array([[0, 1, 2, 3], [4, 5, 6, 7]]))["out_INT64"].tolist() == [[6], [22]]


@pytest.mark.parametrize("kind", NUMBERS)
def test_tensors_are_exchanged_by_dlpack(connect: Ask, kind: str):
    assert compute(connect, "lend", **{f"in_{kind}": ARRAYS[kind]})[f"out_{kind}"].tolist() == ARRAYS[kind].tolist()


@pytest.mark.parametrize("columns", [3, 4], ids=["array", "capsule"])
def test_a_model_gives_arrays_of_numpy_by_dlpack_again_and_again(connect: Ask, columns: int):
    given = np.arange(columns, dtype=np.float32)[np.newaxis]
    for _ in range(3):
        assert compute(connect, "export", in_FP32=given)["out_FP32"].tolist() == (2 * given).tolist()


def test_a_model_gives_arrays_without_elements_by_dlpack(connect: Ask):
    assert compute(connect, "export", in_FP32=np.empty((3, 0), np.float32))["out_FP32"].shape == (3, 0)


def test_strings_may_be_texts_and_bytes(connect: Ask):
    y = compute(connect, "texts", in_STRING=np.array([[b"ab", "ä".encode()]], object))["out_STRING"]
    assert y.tolist() == [[b"ab", b"ab"], ["ä".encode(), "ä".encode()]]


def test_strings_may_be_of_a_fixed_width(connect: Ask):
    given = np.array([[b"ab", "ä".encode(), b""]], object)
    assert compute(connect, "fixed", in_STRING=given)["out_STRING"].tolist() == given.tolist()
    assert compute(connect, "fixed", in_STRING=given[:, :0])["out_STRING"].shape == (1, 0)


def test_a_model_calls_another_one(connect: Ask):
    with connect("ModelClient", "ask") as client:
        assert client.infer_batch(x=np.array([[1, 2, 3]]))["y"].tolist() == [[7, 8, 9]]


def test_threads_of_a_model_send_responses(connect: Ask):
    with connect("DecoupledModelClient", "count") as client:
        found = [response["y"].tolist() for response in client.infer_batch(x=np.array([[0, 100]]))]
    assert found == [[[number, 100 + number]] for number in range(20)]


def test_a_model_is_not_loaded_with_a_numpy_that_the_backend_cannot_be_adapted_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if np.lib.NumpyVersion(np.__version__) < "2.0.0":
        pytest.skip("the backend was built for NumPy 1")
    unknown = tmp_path / "abi.py"
    unknown.write_text(backends.ABI.read_text().replace("ITEM_SIZE_OFFSET = 40", "ITEM_SIZE_OFFSET = 32"))
    monkeypatch.setattr(backends, "ABI", unknown)
    repository = tmp_path / "repository"
    write_echo(repository)
    explicit = inprocess.ModelControlMode.EXPLICIT
    refused = pytest.raises(inprocess.TritonError, match=r"cannot be adapted to NumPy 2.* Install numpy<2")
    with inprocess.Server(model_repository=str(repository), model_control_mode=explicit) as server, refused:
        server.load("echo")
