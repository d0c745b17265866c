"""What the requests of a batch hand on to those that are made for them."""

import json

from pytriton.constants import CALLERS_PARAMETER
from pytriton.wire.frames import REQUEST, Frame
from pytriton.worker.origin import Origin


def callers(*paths):
    entries = {str(index): {"parameters": {CALLERS_PARAMETER: path}} for index, path in enumerate(paths)}
    frame = Frame(REQUEST, 1, len(paths), metadata=json.dumps(entries).encode() if paths else b"")
    return Origin(frame).callers("secret")


def test_merged_requests_wait_for_each_other_as_deep_as_the_deepest_of_them():
    found = callers(*(f"secret 1 caller_{number}" for number in range(20)), "secret 2 a b")
    assert found == (2, [*(f"caller_{number}" for number in range(20)), "a", "b"])


def test_requests_of_clients_have_no_callers():
    assert callers() == (0, [])


def test_what_a_client_forges_does_not_count():
    forged = "9 a b", "", 7, "9" * 5000, "²", "secre 9 a", "secrets 9 a", "\ud800 9 a", " secret 9 a"
    assert callers(*forged, "secret 1 a") == (1, ["a"])
