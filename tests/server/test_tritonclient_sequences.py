"""Sequence ids and flags of tritonclient, for models without sequence batching."""

import re

import pytest

from tests.server.arrays import filled
from tests.server.conftest import local_config
from tests.server.processes import wait_for


@pytest.fixture(scope="module")
def log_file(tmp_path_factory):
    return tmp_path_factory.mktemp("log") / "server.log"


@pytest.fixture(scope="module")
def triton_config(log_file):
    with local_config(log_verbose=1, log_file=log_file) as config:
        yield config


@pytest.fixture(scope="module")
def log(bind):
    """A model that keeps its requests' parameters."""

    class Log(list):
        def __call__(self, requests):
            self.extend(request.parameters for request in requests)
            return [{"y": request["x"]} for request in requests]

    log = Log()
    log.model = bind(log)
    return log


@pytest.fixture
def described(log_file):
    """What the server's log says of a request, by its id: flags and correlation id."""

    def described(request_id):
        pattern = re.compile(rf"request id: {request_id},.*flags: 0x(\w+), correlation id: (\S+), batch size")
        wait_for(lambda: pattern.search(log_file.read_text()), f"the server to describe request {request_id}")
        return pattern.search(log_file.read_text()).groups()

    return described


@pytest.mark.parametrize("sequence", [7, 2**63 - 1, "texts-too"])
@pytest.mark.parametrize(
    ("start", "end", "flags"), [(True, False, 1), (False, True, 2), (True, True, 3), (False, False, 0)]
)
def test_ids_and_flags_reach_the_server(api, log, described, sequence, start, end, flags):
    options = {"sequence_id": sequence, "sequence_start": start, "sequence_end": end}
    request_id = f"{sequence}-{flags}-{api.kind}"
    answer = api.infer(log.model, {"x": filled(3)}, request_id=request_id, **options)
    assert answer["y"][0, 0] == 3
    assert described(request_id) == (str(flags), str(sequence))


@pytest.mark.parametrize("sequence", [0, ""])
def test_flags_without_an_id_are_not_sent(api, log, described, sequence):
    request_id = f"none-{api.kind}-{sequence}"
    api.infer(log.model, {"x": filled(3)}, request_id=request_id, sequence_id=sequence, sequence_start=True)
    assert described(request_id) == ("0", "0")


def test_a_sequence_is_answered_request_by_request(api, log):
    for number in range(4):
        options = {"sequence_id": 9, "sequence_start": number == 0, "sequence_end": number == 3}
        assert api.infer(log.model, {"x": filled(number)}, **options)["y"][0, 0] == number


def test_ids_and_flags_are_no_parameters_of_the_callable(api, log):
    log.clear()
    api.infer(log.model, {"x": filled(3)}, sequence_id=7, sequence_start=True, parameters={"mine": 1})
    assert log == [{"mine": 1}]
