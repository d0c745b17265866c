"""Loggers whose handlers, filters and formatters raise."""

import logging
import threading

import pytest

from pytriton.logs import get_logger, handle
from pytriton.pool.pipes import log_child_record


class Raising(logging.Handler):
    """Raises in ``emit``, as handlers do that do not call ``handleError``."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def emit(self, record):
        raise self.error


class RaisingFilter(logging.Filter):
    def filter(self, record):
        raise ValueError("the filter")


class RaisingFormatter(logging.Formatter):
    def format(self, record):
        raise ValueError("the formatter")


def formatting_as_it_emits():
    handler = logging.Handler()
    handler.setFormatter(RaisingFormatter())
    handler.emit = handler.format
    return handler


def filtering():
    handler = logging.Handler()
    handler.addFilter(RaisingFilter())
    return handler


HANDLERS = [lambda: Raising(ValueError("the handler")), filtering, formatting_as_it_emits]


@pytest.fixture
def root():
    """The root logger, from which handlers are removed at the end."""
    before = list(logging.root.handlers)
    yield logging.root
    logging.root.handlers[:] = before


@pytest.mark.parametrize("make", HANDLERS)
def test_what_a_handler_of_the_program_raises_is_printed_and_not_raised(root, make, capfd):
    root.addHandler(make())
    get_logger("pytriton.worker").error("model %s: %s", "m", "bad")
    printed = capfd.readouterr().err
    assert "ValueError: the" in printed
    assert "Message: 'model m: bad'" in printed


def test_nothing_is_printed_if_the_program_says_so(root, monkeypatch, capfd):
    monkeypatch.setattr(logging, "raiseExceptions", False)
    root.addHandler(Raising(ValueError()))
    get_logger("pytriton.worker").error("bad")
    assert capfd.readouterr().err == ""


def test_a_filter_of_our_own_logger_may_raise_too(capfd):
    logger, broken = get_logger("pytriton.test.filtered"), RaisingFilter()
    logger.addFilter(broken)
    logger.error("bad")
    assert "ValueError: the filter" in capfd.readouterr().err


def test_a_factory_of_records_may_raise(monkeypatch, caplog, capfd):
    def make(*arguments, **named):
        raise ValueError("the factory")

    before = logging.getLogRecordFactory()
    logging.setLogRecordFactory(make)
    try:
        get_logger("pytriton.worker").error("model %s", "m")
    finally:
        logging.setLogRecordFactory(before)
    assert caplog.messages == ["model m"]
    assert caplog.records[0].funcName == "test_a_factory_of_records_may_raise"
    assert "ValueError: the factory" in capfd.readouterr().err


def test_a_thread_of_ours_outlives_a_handler_that_exits(root):
    root.addHandler(Raising(SystemExit(1)))
    reached = threading.Event()

    def work():
        get_logger("pytriton.worker").error("bad")
        reached.set()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert reached.is_set()


def test_ctrl_c_while_a_record_is_handled_interrupts_the_program(root):
    root.addHandler(Raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        get_logger("pytriton.worker").error("bad")


def test_records_of_workers_go_to_loggers_of_the_program_which_stay_as_they_are(root, capfd):
    root.addHandler(Raising(ValueError("the handler")))
    log_child_record("m-0", {"name": "users.own", "levelno": logging.ERROR, "levelname": "ERROR", "msg": "bad"})
    assert "Message: '[m-0] bad'" in capfd.readouterr().err
    with pytest.raises(ValueError, match="the handler"):
        logging.getLogger("users.own").error("bad")


def test_a_record_says_where_it_was_made(caplog):
    get_logger("pytriton.worker").error("bad")
    get_logger("pytriton.worker").error("bad")
    assert {record.funcName for record in caplog.records} == {"test_a_record_says_where_it_was_made"}
    assert len(caplog.records) == 2


def test_a_disabled_logger_stays_silent(caplog):
    logger = get_logger("pytriton.test.disabled")
    logger.disabled = True
    handle(logger, logging.makeLogRecord({"msg": "bad", "levelno": logging.ERROR}))
    logger.error("bad")
    assert caplog.records == []
