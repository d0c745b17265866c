"""Tensors of the first protocol, where no server says the same: labels, other servers' answers, other descriptions."""

import numpy as np
import pytest

from pytriton.client.tensors import OutputRequest
from pytriton.compat.tensorrtserver.api import InferContext, InferenceServerException
from pytriton.compat.tensorrtserver.served_model import fetch_descriptions, from_metadata
from pytriton.compat.tensorrtserver.shared_memory import SharedMemoryHandle
from pytriton.compat.tensorrtserver.tensors import Tensors
from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig

RAW, CLASS = InferContext.ResultFormat.RAW, InferContext.ResultFormat.CLASS
X = TensorSpec("x", (2,), np.float32)
CONFIG = TritonModelConfig("m", max_batch_size=4, inputs=[X], outputs=[TensorSpec("y", (-1,), np.float32)])
METADATA = {
    "name": "m",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": ["-1", "3"]}],
    "outputs": [{"name": "y", "datatype": "BYTES", "shape": ["-1", "1"]}],
}


class Result:
    """A response with one output."""

    def get_response(self):
        return {"outputs": [{"name": "y", "shape": [1, 2]}]}

    def __init__(self, array):
        self._array = array

    def as_numpy(self, name):
        return {"y": self._array}.get(name)


def decoded_all(outputs, array=None, batch_size=1, config=CONFIG):
    tensors = Tensors(config)
    return tensors.decode(Result(array), tensors.wanted(outputs), batch_size)


def decoded(array, form=RAW, batch_size=1, config=CONFIG):
    return decoded_all({"y": form}, array, batch_size, config)["y"]


def test_classes_have_the_labels_of_models_that_have_some():
    found = decoded(np.array([[b"0.5:2:cat: big", b"-1e3:0:dog"], [b"7:1", b"6:0:"]], dtype=object), (CLASS, 2), 2)
    assert found == [[(2, 0.5, "cat: big"), (0, -1000.0, "dog")], [(1, 7.0, None), (0, 6.0, "")]]


def test_an_empty_array_has_the_outputs_dtype():
    (found,) = decoded(np.zeros((1, 0), np.float64))
    assert (found.dtype, found.shape) == (np.float32, (0,))


@pytest.mark.parametrize("form", [RAW, (RAW,), [RAW]])
def test_raw_may_stand_alone_or_in_a_tuple(form):
    assert [row.tolist() for row in decoded(np.array([[1, 2]], np.float32), form)] == [[1, 2]]


@pytest.mark.parametrize(
    ("array", "form", "message"),
    [
        (None, RAW, "lacks output 'y'"),
        (np.zeros((2, 1), np.float32), RAW, "has 2 rows for a batch of 1"),
        (np.array([[b"no class"]], dtype=object), (CLASS, 1), "cannot be decoded"),
        (np.array([[b"\xff:1"]], dtype=object), (CLASS, 1), "cannot be decoded"),
    ],
)
def test_an_answer_that_does_not_fit_is_an_error(array, form, message):
    with pytest.raises(InferenceServerException, match=message):
        decoded(array, form)


def test_a_tensor_of_one_value_per_row_is_a_column():
    config = TritonModelConfig("m", inputs=[TensorSpec("x", (), np.float32)])
    (tensor,) = Tensors(config).encode({"x": [np.ones(1, np.float32)] * 3}, 3)
    assert tensor.shape == (3, 1)


def test_metadata_leave_it_open_whether_a_variable_first_dimension_is_the_batch():
    batching, single = from_metadata(METADATA)
    assert batching.max_batch_size > 2**30
    assert (batching.inputs, batching.outputs) == (
        [TensorSpec("x", (3,), np.float32)],
        [TensorSpec("y", (1,), np.bytes_)],
    )
    assert (single.max_batch_size, single.inputs[0].shape, single.outputs[0].shape) == (0, (-1, 3), (-1, 1))
    for array, fits in ((np.ones(3, np.float32), batching), (np.ones((2, 3), np.float32), single)):
        for config in (batching, single):
            assert Tensors(config).fit({"x": [array]}) is (config is fits)


@pytest.mark.parametrize("shape", [[3, 1], [-1], [3]])
def test_metadata_of_one_dimension_or_a_fixed_first_one_have_no_batch(shape):
    (single,) = from_metadata({**METADATA, "outputs": [{"name": "y", "datatype": "INT8", "shape": shape}]})
    assert (single.max_batch_size, single.inputs[0].shape) == (0, (-1, 3))


def test_another_failure_than_a_restriction_is_not_passed_over():
    calls = []

    def call(method, arguments):
        calls.append(method)
        raise InferenceServerException("unknown model")

    with pytest.raises(InferenceServerException, match="unknown model"):
        fetch_descriptions(call, {"model_name": "m", "model_version": ""})
    assert calls == ["get_model_config"]


@pytest.mark.parametrize("config", [{"max_batch_size": 1}, {"name": "m", "input": [{"name": "x"}]}, None])
def test_a_description_that_makes_no_sense_is_an_error(config):
    with pytest.raises(InferenceServerException, match="model 'm' cannot be understood"):
        fetch_descriptions(lambda method, arguments: config, {"model_name": "m", "model_version": ""})


class Fields:
    name, raw_handle, device_id, byte_size = "gpu", b"c2VjcmV0", 1, 64


@pytest.mark.parametrize("handle", [Fields(), {name: getattr(Fields, name) for name in vars(Fields) if name[0] != "_"}])
def test_a_handle_is_anything_with_its_fields(handle):
    assert SharedMemoryHandle.is_one(handle)
    assert SharedMemoryHandle.of(handle) == SharedMemoryHandle("gpu", 64, raw_handle=b"c2VjcmV0", device_id=1)
    assert SharedMemoryHandle.of(SharedMemoryHandle.of(handle)).raw_handle == b"c2VjcmV0"


def test_inputs_take_of_a_region_what_their_shape_needs_and_outputs_may_fill_it():
    specs = [X, TensorSpec("any", (-1,), np.int8, optional=True), TensorSpec("text", (-1,), np.bytes_, optional=True)]
    tensors = Tensors(TritonModelConfig("m", inputs=specs, outputs=CONFIG.outputs))
    region = {"name": "r", "key": "k", "byte_size": 64}
    encoded = tensors.encode({"x": region, "any": (region, [5]), "text": (region, [2])}, 3)
    assert [tensor.shape for tensor in encoded] == [[3, 2], [3, 5], [3, 2]]
    assert [(tensor.region, tensor.region_bytes) for tensor in encoded] == [("r", 24), ("r", 15), ("r", 64)]
    (wanted,) = tensors.wanted({"y": (RAW, region)})
    assert wanted.request == OutputRequest("y", 0, "r", 64)


def test_memory_of_a_gpu_that_another_process_has_made_is_not_read():
    gpu = {"name": "gpu", "raw_handle": b"", "device_id": 0, "byte_size": 64}
    assert decoded_all({"y": (RAW, gpu)}) == {}


def test_a_region_for_a_variable_shape_needs_the_shape():
    config = TritonModelConfig("m", inputs=[TensorSpec("x", (-1,), np.float32)])
    with pytest.raises(InferenceServerException, match=r"pass \(handle, shape\)"):
        Tensors(config).encode({"x": {"name": "r", "key": "k", "byte_size": 24}}, 1)
