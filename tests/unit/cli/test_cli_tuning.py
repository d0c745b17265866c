"""``pytriton serve FILE --tune``; tests/server/test_saved_models.py runs the command."""

import math
import os

import pytest

from pytriton.cli import tuning
from pytriton.cli.tuning import best_rows, tuned_rows
from pytriton.exceptions import PyTritonValidationError
from tests.unit.saved.files import of_joblib

OPTIONS = {"trust": True}


@pytest.mark.parametrize(
    ("call_s", "most", "best"),
    [
        (lambda rows: 0.001, 4096, 4096),  # of a call alone
        (lambda rows: 0.001 * rows, 4096, 1),  # of rows alone
        (lambda rows: max(0.001, 0.001 * rows / 64), 4096, 64),
        (lambda rows: 0.001 * (1 + (rows > 2)) + 0.00001 * rows, 4096, 2048),  # a step on the way
        (lambda rows: 0.001 * rows**0.98, 4096, 1),  # gains that are not worth a longer wait
        (lambda rows: 0.3 + 0.1 * rows, 4096, 8),  # a call takes long
        (lambda rows: 0.001, 100, 64),
        (lambda rows: 0.001 if rows <= 32 else math.inf, 4096, 32),  # larger ones fail
    ],
)
def test_the_best_number_of_rows_is_found(call_s, most, best):
    assert best_rows(call_s, most) == best


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """What would have been measured, with half of the most rows as the result."""
    monkeypatch.setattr(tuning, "PYTRITON_HOME", tmp_path / "home")
    calls = []
    monkeypatch.setattr(tuning, "_measured", lambda path, arguments, most: calls.append(arguments) or most // 2)
    return calls


def test_what_was_measured_is_remembered_until_the_file_or_its_options_change(measured, tmp_path):
    path = of_joblib(tmp_path).path
    assert [tuned_rows(path, OPTIONS, 4096, 2) for _ in range(2)] == [2048, 2048]
    assert measured == [{**OPTIONS, "threads": 2}]
    tuned_rows(path, OPTIONS, 4096, 1)
    os.utime(path, (0, 0))
    tuned_rows(path, OPTIONS, 4096, 1)
    tuned_rows(path, {**OPTIONS, "method": "predict_proba"}, 4096, 1)
    assert tuned_rows(path, {**OPTIONS, "method": "predict_proba"}, 64, 1) == 32
    assert len(measured) == 5


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', "{"])
def test_a_damaged_memory_is_written_anew(text, measured, tmp_path):
    memory = tmp_path / "home" / tuning.FILE
    memory.parent.mkdir()
    memory.write_text(text)
    path = of_joblib(tmp_path).path
    assert [tuned_rows(path, OPTIONS, 4096, 2) for _ in range(2)] == [2048, 2048]
    assert len(measured) == 1
    assert [*memory.parent.iterdir()] == [memory]


def test_a_model_is_measured_in_a_process_of_its_own_and_what_is_wrong_with_its_file_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(tuning, "PYTRITON_HOME", tmp_path / "home")
    path = of_joblib(tmp_path).path
    assert 1 <= tuned_rows(path, OPTIONS, 8, 1) <= 8
    assert 1 <= tuned_rows(path, OPTIONS, None, 1) <= 4096
    with pytest.raises(PyTritonValidationError, match="has the format pickle"):
        tuned_rows(path, {}, 8, 1)


def test_a_process_that_dies_while_it_measures_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(tuning, "PYTRITON_HOME", tmp_path / "home")
    monkeypatch.setattr(tuning, "_measure", dies)
    with pytest.raises(PyTritonValidationError, match="died, perhaps for want of memory; lower --max-batch-size"):
        tuned_rows(of_joblib(tmp_path).path, OPTIONS, 8, 1)
    assert not (tmp_path / "home").exists()


def dies(*_):
    os._exit(1)
