"""A server's status as it is shown."""

from datetime import datetime, timedelta, timezone

import pytest
from rich.console import Console

from pytriton.cli.status import CODE_PATH, ModelStatus, ServerStatus, ask_server, format_age, render_status, unlock
from pytriton.client.exceptions import PyTritonClientConnectionError, PyTritonClientInferenceServerError
from pytriton.server.statistics import parse_statistics

NOW = datetime(2030, 1, 1, 12, tzinfo=timezone.utc)
MS = 1_000_000


def shown(status):
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file:
        console.print(render_status(status, NOW))
        return console.export_text()


def status(models=None, **changes):
    fields = {"live": True, "ready": True, "name": "triton", "version": "2.51.0", "notes": []}
    return ServerStatus("http://localhost:8000", models=models, **{**fields, **changes})


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0 s ago"), (59.9, "59 s ago"), (60, "1 min ago"), (7300, "2 h ago"), (200_000, "2 d ago")],
)
def test_ages_have_the_largest_unit_that_fits(seconds, text):
    assert format_age(NOW - timedelta(seconds=seconds), NOW) == text


def test_the_table_has_counts_and_mean_times():
    (statistics,) = parse_statistics(
        {
            "model_stats": [
                {
                    "name": "m",
                    "version": "3",
                    "last_inference": int((NOW - timedelta(seconds=7)).timestamp() * 1000),
                    "inference_count": 1234,
                    "inference_stats": {
                        "success": {"count": 4, "ns": 40 * MS},
                        "fail": {"count": 2, "ns": MS},
                        "queue": {"count": 4, "ns": 2 * MS},
                        "compute_infer": {"count": 4, "ns": 6 * MS},
                    },
                }
            ]
        }
    )
    text = shown(status([ModelStatus("m", "3", "READY", statistics), ModelStatus("n", "1", "UNAVAILABLE", None)]))
    assert "http://localhost:8000: live, ready; triton 2.51.0" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["m", "3", "READY", "1,234", "4", "2", "0.500", "1.500", "10.000", "7", "s", "ago"] in rows
    assert ["n", "1", "UNAVAILABLE", *"-------"] in rows


def test_a_server_without_models_says_so():
    assert "It has no models." in shown(status([]))


def test_a_note_is_shown_once():
    text = shown(status(notes=["It does not tell.", "It does not tell."], live=False, ready=False, name=None))
    assert text.count("It does not tell.") == 1
    assert "not live, not ready\n" in text


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_a_server_that_is_not_there_is_told_once(scheme):
    found = ask_server(f"{scheme}://127.0.0.1:1", None, None, timeout_s=5)
    assert (found.live, found.ready, found.models, found.name) == (False, False, None, None)
    assert len(found.notes) == 1
    assert "failed at is_server_live" in found.notes[0]


@pytest.mark.parametrize(
    "body", [b'{"error": "there is no such path"}', b"<html>", b"", b'{"error": {"message": "late"}}']
)
def test_a_code_that_is_refused_by_what_is_no_app_is_a_plain_error(web, body):
    web.status, web.body = 404, body
    told = "late" if b"late" in body else "Not Found"
    with pytest.raises(PyTritonClientInferenceServerError, match=f"refuses the code: {told}"):
        unlock(f"http://{web.address}{CODE_PATH}abc", None, 10)


def test_a_code_that_is_answered_with_something_else_is_a_plain_error(web):
    web.body = b"[]"
    with pytest.raises(PyTritonClientConnectionError, match="does not take the code"):
        unlock(f"http://{web.address}{CODE_PATH}abc", None, 10)
