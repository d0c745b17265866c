"""What the requests of a batch hand on to those that are made for them."""

import json

from pytriton.constants import CALLERS_PARAMETER
from pytriton.wire.frames import REQUEST, Frame
from pytriton.worker.origin import Origin


def origin(*paths):
    entries = {str(index): {"parameters": {CALLERS_PARAMETER: path}} for index, path in enumerate(paths)}
    return Origin(Frame(REQUEST, 1, len(paths), metadata=json.dumps(entries).encode() if paths else b""))


def test_merged_requests_wait_for_each_other_as_deep_as_the_deepest_of_them():
    found = origin(*(f"1 caller_{number}" for number in range(20)), "2 a b")
    assert found.depth == 2
    assert found.callers == [*(f"caller_{number}" for number in range(20)), "a", "b"]


def test_requests_of_clients_have_no_callers():
    assert (origin().depth, [*origin().callers]) == (0, [])


def test_what_a_client_forges_is_no_error():
    forged = origin("a b", "", 7, "9" * 5000, "²")
    assert (forged.depth, forged.callers) == (7, ["b"])
