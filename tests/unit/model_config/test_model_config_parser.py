import json

import numpy as np
import pytest

from pytriton.exceptions import PyTritonModelConfigError
from pytriton.model_config import DeviceKind, DynamicBatcher, QueuePolicy, TimeoutAction
from pytriton.model_config.parser import ModelConfigParser
from pytriton.model_config.triton_model_config import ResponseCache, TensorSpec, TritonModelConfig

SERVER_JSON = """
{"name":"m","platform":"","backend":"python","runtime":"","version_policy":{"all":{}},"max_batch_size":16,
 "input":[{"name":"a","data_type":"TYPE_FP32","format":"FORMAT_NONE","dims":[-1],"is_shape_tensor":false,
           "allow_ragged_batch":false,"optional":false,"is_non_linear_format_io":false},
          {"name":"b","data_type":"TYPE_STRING","format":"FORMAT_NONE","dims":[1],"reshape":{"shape":[]},
           "is_shape_tensor":false,"allow_ragged_batch":false,"optional":true}],
 "output":[{"name":"c","data_type":"TYPE_BOOL","dims":[2,3],"reshape":null,"label_filename":"",
            "is_shape_tensor":false}],
 "batch_input":[],"batch_output":[],
 "optimization":{"priority":"PRIORITY_DEFAULT","input_pinned_memory":{"enable":true},
                 "gather_kernel_buffer_threshold":0,"eager_batching":false},
 "dynamic_batching":{"preferred_batch_size":[8],"max_queue_delay_microseconds":100,"preserve_ordering":false,
                     "priority_levels":2,"default_priority_level":1,
                     "default_queue_policy":{"timeout_action":"DELAY","default_timeout_microseconds":5,
                                             "allow_timeout_override":false,"max_queue_size":0},
                     "priority_queue_policy":{"2":{"timeout_action":"REJECT","default_timeout_microseconds":0,
                                                   "allow_timeout_override":true,"max_queue_size":7}}},
 "instance_group":[{"name":"m_0","kind":"KIND_CPU","count":1,"gpus":[],"secondary_devices":[],"profile":[],
                    "passive":false,"host_policy":""}],
 "default_model_filename":"model.py","cc_model_filenames":{},"metric_tags":{},
 "parameters":{"socket":{"string_value":"ipc://x"}},"model_warmup":[],
 "model_transaction_policy":{"decoupled":false},"response_cache":{"enable":false}}
"""
CLIENT_JSON = """
{"name":"m","backend":"python","versionPolicy":{"all":{}},"maxBatchSize":16,
 "input":[{"name":"a","dataType":"TYPE_FP32","dims":["-1"]},
          {"name":"b","dataType":"TYPE_STRING","dims":["1"],"reshape":{},"optional":true}],
 "output":[{"name":"c","dataType":"TYPE_BOOL","dims":["2","3"]}],
 "dynamicBatching":{"preferredBatchSize":[8],"maxQueueDelayMicroseconds":"100","priorityLevels":"2",
                    "defaultPriorityLevel":"1",
                    "defaultQueuePolicy":{"timeoutAction":"DELAY","defaultTimeoutMicroseconds":"5"},
                    "priorityQueuePolicy":{"2":{"allowTimeoutOverride":true,"maxQueueSize":7}}},
 "instanceGroup":[{"name":"m_0","kind":"KIND_CPU","count":1}],"defaultModelFilename":"model.py",
 "parameters":{"socket":{"stringValue":"ipc://x"}},"modelTransactionPolicy":{},"responseCache":{}}
"""
EXPECTED = TritonModelConfig(
    "m",
    max_batch_size=16,
    batcher=DynamicBatcher(
        max_queue_delay_microseconds=100,
        preferred_batch_size=[8],
        priority_levels=2,
        default_priority_level=1,
        default_queue_policy=QueuePolicy(TimeoutAction.DELAY, 5),
        priority_queue_policy={2: QueuePolicy(allow_timeout_override=True, max_queue_size=7)},
    ),
    instance_group={DeviceKind.KIND_CPU: 1},
    backend_parameters={"socket": "ipc://x"},
    inputs=[TensorSpec("a", (-1,), np.float32), TensorSpec("b", (), np.bytes_, optional=True)],
    outputs=[TensorSpec("c", (2, 3), np.bool_)],
    response_cache=ResponseCache(enable=False),
)


@pytest.mark.parametrize("text", [SERVER_JSON, CLIENT_JSON], ids=["http", "grpc"])
def test_both_forms_of_a_servers_answer_mean_the_same(text):
    assert ModelConfigParser.from_dict(json.loads(text)) == EXPECTED


def parse(**keys):
    return ModelConfigParser.from_dict({"name": "m", **keys})


def test_a_name_alone_is_a_model_without_batching():
    assert parse() == TritonModelConfig("m", batching=False)
    assert parse().max_batch_size == 0


def test_a_size_alone_is_batching_without_dynamic_batching():
    assert parse(max_batch_size="8") == TritonModelConfig("m", max_batch_size=8)


def test_dynamic_batching_at_its_defaults_is_the_default_batcher():
    said = {"preferred_batch_size": [], "max_queue_delay_microseconds": 0, "priority_queue_policy": {}}
    assert parse(max_batch_size=8, dynamic_batching={}).batcher == DynamicBatcher()
    assert parse(max_batch_size=8, dynamic_batching=said).batcher == DynamicBatcher()


def test_null_is_absent():
    keys = ("dynamic_batching", "input", "instance_group", "model_transaction_policy", "parameters", "response_cache")
    assert parse(**dict.fromkeys(keys)) == parse()


def test_empty_lists_of_tensors_are_none():
    assert parse(input=[], output=[]).inputs is None


@pytest.mark.parametrize(("dims", "reshape"), [([1, 1], {"shape": []}), ([4], {"shape": ["2", "2"]})])
def test_another_reshape_is_left_to_the_backend_and_clients_see_the_dims(dims, reshape):
    tensor = {"name": "x", "data_type": "TYPE_FP32", "dims": dims, "reshape": reshape}
    assert parse(input=[tensor]).inputs == [TensorSpec("x", tuple(dims), np.float32)]


def test_instances_of_one_kind_in_several_groups_are_added_up():
    groups = [{"kind": "KIND_GPU", "count": 1, "gpus": [0]}, {"kind": "KIND_GPU", "count": 2, "gpus": [1]}, {}]
    assert parse(instance_group=groups).instance_group == {DeviceKind.KIND_GPU: 3, DeviceKind.KIND_AUTO: None}


def test_models_that_place_themselves_are_understood():
    assert parse(instance_group=[{"kind": "KIND_MODEL", "count": 1}]).instance_group == {DeviceKind.KIND_MODEL: 1}


def test_parameters_may_be_a_list_of_names():
    assert parse(parameters=["a", "b"]).backend_parameters == {"a": "", "b": ""}


def test_parameters_of_another_type_are_a_type_error():
    with pytest.raises(TypeError, match="parameters"):
        parse(parameters="a")


def test_a_configuration_without_name_is_a_key_error():
    with pytest.raises(KeyError, match="name"):
        ModelConfigParser.from_dict({"max_batch_size": 1})


def test_what_is_no_dict_is_a_type_error():
    with pytest.raises(TypeError, match="expected an object"):
        ModelConfigParser.from_dict([])


TENSOR = {"name": "x", "data_type": "TYPE_FP32", "dims": [1]}
WRONG_TENSORS = [
    ({**TENSOR, "name": None}, "name is missing"),
    ({**TENSOR, "name": ""}, "name: must not be empty"),
    ({**TENSOR, "data_type": None}, "data_type is missing"),
    ({**TENSOR, "data_type": ""}, "data_type"),
    ({**TENSOR, "data_type": "FP32"}, "data_type: 'FP32' is not a supported data type"),
    ({**TENSOR, "data_type": "TYPE_FP31"}, "data_type: 'TYPE_FP31' is not a supported data type"),
    ({**TENSOR, "data_type": 11}, "data_type: expected a text"),
    ({**TENSOR, "dims": None}, "dims is missing"),
    ({**TENSOR, "dims": []}, "dims: must not be empty"),
    ({**TENSOR, "dims": 3}, "dims: expected a list"),
    ({**TENSOR, "dims": [0]}, "shape"),
    ({**TENSOR, "dims": ["x"]}, "dims"),
    ({**TENSOR, "optional": "false"}, "optional: expected true or false"),
    ({**TENSOR, "reshape": 5}, "expected an object"),
    ("x", "expected an object"),
]


@pytest.mark.parametrize("side", ["input", "output"])
@pytest.mark.parametrize(("tensor", "match"), WRONG_TENSORS)
def test_a_wrong_tensor_is_refused_with_its_place(side, tensor, match):
    with pytest.raises(PyTritonModelConfigError, match=rf"{side}: \[1\]: .*{match}"):
        parse(**{side: [TENSOR, tensor]})


WRONG_KEYS = [
    {"name": ""},
    {"name": 5},
    {"max_batch_size": True},
    {"max_batch_size": 1.5},
    {"max_batch_size": "many"},
    {"dynamic_batching": []},
    {"dynamic_batching": {"default_queue_policy": {"timeout_action": "PANIC"}}},
    {"dynamic_batching": {"priority_queue_policy": []}},
    {"dynamic_batching": {"priority_queue_policy": {"high": {}}}},
    {"input": {}},
    {"instance_group": [{"kind": "KIND_TPU"}]},
    {"instance_group": ["KIND_CPU"]},
    {"model_transaction_policy": True},
    {"model_transaction_policy": {"decoupled": 1}},
    {"parameters": {"a": "b"}},
    {"parameters": {"a": {"string_value": 5}}},
    {"parameters": [5]},
    {"response_cache": {"enable": "yes"}},
]


@pytest.mark.parametrize("keys", WRONG_KEYS, ids=repr)
def test_a_value_of_the_wrong_kind_is_refused_with_its_key(keys):
    (key,) = keys
    with pytest.raises(PyTritonModelConfigError, match=f"^{key}: "):
        parse(**keys)


def test_a_file_in_another_format_is_refused_with_its_path(tmp_path):
    for content in (b'{"name": "m"}', b"\xff"):
        path = tmp_path / "config.pbtxt"
        path.write_bytes(content)
        with pytest.raises(PyTritonModelConfigError, match=r"config\.pbtxt is not a model configuration"):
            ModelConfigParser.from_file(config_path=path)


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        ModelConfigParser.from_file(config_path=tmp_path / "config.pbtxt")


def test_a_file_with_only_a_name_is_a_model_without_batching(tmp_path):
    path = tmp_path / "config.pbtxt"
    path.write_text('name: "m"\n')
    assert ModelConfigParser.from_file(config_path=str(path)) == TritonModelConfig("m", batching=False)
