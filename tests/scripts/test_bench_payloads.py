"""The requests of the benchmark."""

import json

import numpy as np
import payloads
import pytest
from payloads import WORKLOADS, Workload
from tritonclient.grpc import service_pb2
from tritonclient.utils import deserialize_bytes_tensor

pytestmark = pytest.mark.thorough

IDS = [name for name, workload in WORKLOADS.items() if workload.ids]


def described(request):
    """The JSON of an HTTP request, and the data that follows it."""
    head, _, body = request.partition(b"\r\n\r\n")
    fields = dict(line.split(b": ") for line in head.split(b"\r\n")[1:])
    assert int(fields[b"Content-Length"]) == len(body)
    size = int(fields[b"Inference-Header-Content-Length"])
    return json.loads(body[:size]), body[size:]


def test_strings_have_all_lengths_from_nothing_to_the_longest_in_no_order():
    lengths = [len(each) for each in payloads.strings(1, 1000)[0]]
    assert set(lengths) == set(range(payloads.LONGEST_STRING_BYTES + 1))
    assert lengths != sorted(lengths)


def test_strings_are_encoded_as_the_protocol_has_them():
    values = payloads.strings(2, 500)
    assert values.shape == (2, 500)
    assert deserialize_bytes_tensor(payloads.encode(values)).tolist() == values.ravel().tolist()


@pytest.mark.parametrize("name", [name for name in WORKLOADS if not name.endswith("MiB")])
def test_both_protocols_send_the_same_inputs(name):
    workload = WORKLOADS[name]
    for rows in workload.rows:
        head, data = described(payloads.http_request(1, workload, rows))
        message = service_pb2.ModelInferRequest.FromString(payloads.grpc_request(1, workload, rows))
        assert message.model_name == workload.model
        assert b"".join(message.raw_input_contents) == data
        assert [each["name"] for each in head["inputs"]] == [each.name for each in message.inputs]
        assert [each["datatype"] for each in head["inputs"]] == [each.datatype for each in message.inputs]
        assert [each["shape"] for each in head["inputs"]] == [[*each.shape] for each in message.inputs]
        assert [each["shape"][0] for each in head["inputs"]] == [rows] * len(head["inputs"])
        assert sorted(head.get("parameters", {})) == sorted(message.parameters)
        assert head.get("id", "") == message.id


@pytest.mark.parametrize("name", IDS)
def test_the_place_of_an_id_is_found_in_each_request(name):
    workload = WORKLOADS[name]
    for rows in workload.rows:
        requests = payloads.http_request(1, workload, rows), payloads.grpc_request(1, workload, rows)
        changed = [request.replace(payloads.ID, b"12345678", 1) for request in requests]
        assert described(changed[0])[0]["id"] == service_pb2.ModelInferRequest.FromString(changed[1]).id == "12345678"


def test_the_workloads_have_mixed_rows_parameters_and_inputs_of_two_dtypes():
    head, _ = described(payloads.http_request(1, WORKLOADS["1-4 rows, ids, two inputs"], 3))
    assert [(each["datatype"], each["shape"]) for each in head["inputs"]] == [("FP32", [3, 16]), ("INT64", [3, 3])]
    head, _ = described(payloads.http_request(1, WORKLOADS["1-4 rows, ids, parameters"], 1))
    assert head["parameters"] == payloads.PARAMETERS
    assert WORKLOADS["1-4 rows"].rows == (1, 2, 3, 4)
    assert len(described(payloads.http_request(1, WORKLOADS["256 KiB"], 1))[1]) == 256 << 10


def test_outputs_are_doubled_or_copied_and_strings_always_returned():
    pair = Workload(3, rows=(2,), pair=True)
    inputs = pair.inputs(2)
    doubled, copied = pair.outputs(2, copies=False), pair.outputs(2, copies=True)
    np.testing.assert_array_equal(np.frombuffer(doubled["OUTPUT_2"], np.int64), 2 * inputs["INPUT_2"].ravel())
    assert copied["OUTPUT"] == inputs["INPUT"].tobytes()
    texts = Workload(3, strings=True)
    assert texts.outputs(1, copies=False) == texts.outputs(1, copies=True)


def test_values_are_the_same_each_time():
    for workload in WORKLOADS.values():
        if workload.values < 1 << 18:
            assert workload.outputs(1, copies=True) == workload.outputs(1, copies=True)


def test_outputs_are_found_in_responses_of_both_protocols():
    first, second = np.float32([1, 2]).tobytes(), np.int64([3]).tobytes()
    outputs = [("OUTPUT", first), ("OUTPUT_2", second)]
    described = [{"name": name, "parameters": {"binary_data_size": len(data)}} for name, data in outputs]
    body = json.dumps({"outputs": described}).encode()
    head = b"HTTP/1.1 200 OK\r\nInference-Header-Content-Length: %d\r\n\r\n" % len(body)
    assert payloads.http_outputs(head, body + first + second) == dict(outputs)
    message = service_pb2.ModelInferResponse(raw_output_contents=[first, second])
    for name, _ in outputs:
        message.outputs.add(name=name)
    assert payloads.grpc_outputs(b"", message.SerializeToString()) == dict(outputs)


def test_a_wrong_or_missing_output_is_refused():
    payloads.check_outputs({"OUTPUT": b"1"}, {"OUTPUT": b"1"})
    for outputs in ({"OUTPUT": b"2"}, {}):
        with pytest.raises(payloads.LoadError, match="wrong output OUTPUT"):
            payloads.check_outputs(outputs, {"OUTPUT": b"1"})
