"""tritonclient asks for the best classes of an output instead of its values."""

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from pytriton.decorators import batch
from pytriton.model_config import Tensor
from tests.server.proxies import native_part_only
from tests.server.tritonclients import Answer, only_http

pytestmark = pytest.mark.either_proxy

SCORES = np.array([[0.5, 0.125, 4.0, 3.0, 2.0], [-1.0, -2.0, -3.0, -4.0, -0.5]], np.float32)
TEXTS = {name: [Tensor((-1,), bytes, name)] for name in ("x", "y")}
LABELS = [[b"4.000000:2", b"3.000000:3"], [b"-0.500000:4", b"-1.000000:0"]]


@batch
def scores(x):
    return {"real": x, "whole": x.astype(np.int32), "raw": x}


@pytest.fixture(scope="module")
def model(bind):
    dtypes = {"real": np.float32, "whole": np.int32, "raw": np.float32}
    return bind(scores, outputs=[Tensor((5,), dtype, name) for name, dtype in dtypes.items()])


def classes(api, model, name, count, x=SCORES, **options):
    wanted = [api.lib.InferRequestedOutput(name, class_count=count, **options), api.lib.InferRequestedOutput("raw")]
    answer = Answer(api.call("infer", model, api.inputs({"x": x}), outputs=wanted))
    assert np.array_equal(answer["raw"], x)  # another output of the same request
    assert next(output for output in answer.response["outputs"] if output["name"] == name)["datatype"] == "BYTES"
    return answer[name].tolist()


def test_the_best_classes_come_as_value_and_index(api, model):
    assert classes(api, model, "real", 2) == LABELS


def test_integers_have_classes_too(api, model):
    assert classes(api, model, "whole", 1) == [[b"4:2"], [b"0:4"]]


def test_more_classes_than_there_are_give_all(api, model):
    assert [[label.decode().split(":")[1] for label in row] for row in classes(api, model, "real", 9)] == [
        ["2", "3", "4", "0", "1"],
        ["4", "0", "1", "2", "3"],
    ]


@pytest.mark.parametrize("proxy", ["auto", "python"])
def test_labels_of_a_bound_model_follow_value_and_index(api, bind, proxy, tmp_path):
    (tmp_path / "labels.txt").write_text("cat\ndog\nfish: a whale\nzebra\n")
    output = Tensor((5,), np.float32, "y", labels=tmp_path / "labels.txt")
    model = bind(lambda requests: [{"y": request["x"]} for request in requests], outputs=[output], proxy=proxy)
    (tmp_path / "labels.txt").unlink()  # it was read
    wanted = [api.lib.InferRequestedOutput("y", class_count=2)]
    answer = Answer(api.call("infer", model, api.inputs({"x": SCORES}), outputs=wanted))
    assert answer["y"].tolist() == [
        [b"4.000000:2:fish: a whale", b"3.000000:3:zebra"],
        [b"-0.500000:4", b"-1.000000:0:cat"],
    ]


def test_clients_see_the_format_of_images(api, bind):
    image = Tensor((2, 2, 3), np.float32, "x", format="NHWC")
    model = bind(lambda requests: [{"y": request["x"]} for request in requests], [image])
    config = api.call("get_model_config", model)
    (found,) = config.get("config", config)["input"]
    assert found["format"] == "FORMAT_NHWC"


@only_http
def test_classes_travel_as_json(api, model):
    expected = [[label.decode() for label in row] for row in LABELS]
    assert classes(api, model, "real", 2, binary_data=False) == expected


def test_classes_without_batching_have_one_axis(api, bind):
    model = bind(lambda requests: [{"y": request["x"]} for request in requests], batching=False)
    wanted = [api.lib.InferRequestedOutput("y", class_count=2)]
    answer = Answer(api.call("infer", model, api.inputs({"x": SCORES[0]}), outputs=wanted))
    assert answer["y"].tolist() == LABELS[0]


@native_part_only
def test_classes_of_texts_are_refused(api, bind):
    model = bind(lambda requests: [{"y": request["x"]} for request in requests], TEXTS["x"], TEXTS["y"])
    inputs = api.inputs({"x": np.array([[b"a"]], object)})
    with pytest.raises(InferenceServerException, match="unsupported type 'BYTES'"):
        api.call("infer", model, inputs, outputs=[api.lib.InferRequestedOutput("y", class_count=1)])
    assert Answer(api.call("infer", model, inputs))["y"].tolist() == [[b"a"]]
