import logging
import os
from datetime import datetime, timezone

import pytest

from pytriton.server.log import LOGGER, Line, ServerLog, parse_line, read_lines

NOW = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)


class Records(logging.Handler):
    """Keeps what it gets."""

    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)

    def texts(self):
        return [record.getMessage() for record in self.records]


@pytest.fixture
def records():
    """What the logger of the server's lines logs, once a test has given it a level."""
    handler = Records()
    root = logging.getLogger()
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)
    LOGGER.setLevel(logging.NOTSET)


def test_a_line_tells_its_level_time_process_and_source():
    line = 'E1121 19:04:37.438127 31030 server.cc:241] "failed to load"'
    time = datetime(2026, 11, 21, 19, 4, 37, 438127, timezone.utc)
    assert parse_line(line, NOW) == Line(logging.ERROR, time, 31030, "server.cc", 241, "failed to load")


@pytest.mark.parametrize(
    "text",
    [
        "CudaDriverHelper has not been initialized.",
        "failed to allocate pinned system memory: no pinned memory pool, falling back to non-pinned system memory",
        "Failed to set config modification time: model_config_content_name_ is empty",
    ],
)
def test_what_is_said_of_what_is_no_error_is_a_detail(text):
    assert parse_line(f'E1121 19:04:37.438127 31030 server.cc:241] "{text}"', NOW).level == logging.DEBUG


def test_what_is_said_of_a_unix_socket_is_a_detail():
    line = (
        "[\x1b[1;33mWARN\x1b[0;39m]  \x1b[33mevhtp.c:4050     \x1b[39m\x1b[94mNODELAY NOT SUPPORTED\x1b[39m :: "
        "\x1b[35m(errno: Operation not supported)\x1b[39m"
    )
    assert parse_line(line)[:5] == (logging.DEBUG, None, None, "evhtp.c", 4050)
    assert parse_line(line.replace("NODELAY", "ANYTHING ELSE")) is None


def test_a_line_of_the_iso_format_tells_the_same():
    line = '2026-11-21T19:07:52Z W 1841 pinned_memory_manager.cc:273] "Unable to allocate"'
    time = datetime(2026, 11, 21, 19, 7, 52, tzinfo=timezone.utc)
    assert parse_line(line, NOW) == Line(
        logging.WARNING, time, 1841, "pinned_memory_manager.cc", 273, "Unable to allocate"
    )


def test_a_line_of_the_library_that_exports_traces_tells_its_level():
    line = "[Error] File: /build/otlp_http_client.cc:225 [OTLP HTTP Client] request send failed."
    text = "[OTLP HTTP Client] request send failed."
    assert parse_line(line) == Line(logging.ERROR, None, None, "/build/otlp_http_client.cc", 225, text)


def test_what_the_server_says_of_a_message_that_is_not_utf8_is_a_detail():
    text = "String field 'inference.ModelReadyRequest.name' contains invalid UTF-8 data when parsing a protocol buffer."
    line = f"[libprotobuf ERROR /build/wire_format_lite.cc:618] {text}"
    assert parse_line(line) == Line(logging.DEBUG, None, None, "/build/wire_format_lite.cc", 618, text)


@pytest.mark.parametrize(
    ("letter", "level"),
    [
        ("V", logging.DEBUG),
        ("I", logging.DEBUG),
        ("W", logging.WARNING),
        ("E", logging.ERROR),
        ("F", logging.CRITICAL),
    ],
)
def test_letters_are_levels(letter, level):
    assert parse_line(f"{letter}1121 19:04:37.438127 31030 server.cc:241] x", NOW).level == level


@pytest.mark.parametrize(
    "line",
    [
        "",
        "+-------+---------+",
        "| Model | Version |",
        "Signal (2) received.",
        "I1121 something else",
        "I1121 19:04:37.438127 31030 no source] x",
        "IMPORTANT",
    ],
)
def test_other_lines_begin_no_record(line):
    assert parse_line(line, NOW) is None


def test_a_message_is_read_as_the_json_that_it_is():
    line = r'I1121 19:04:37.438127 31030 a.cc:1] "two\nlines with \"quotes\""'
    assert parse_line(line, NOW).text == 'two\nlines with "quotes"'


def test_a_message_that_is_no_json_keeps_its_text():
    line = r'I1121 19:04:37.438127 31030 a.cc:1] "a \path"'
    assert parse_line(line, NOW).text == r"a \path"


def test_a_line_of_december_is_of_last_year_in_january():
    january = datetime(2027, 1, 1, 0, 1, tzinfo=timezone.utc)
    assert parse_line("I1231 23:59:59.999999 1 a.cc:1] x", january).time.year == 2026


START = ["I1121 19:04:37.438127 1 a.cc:1] ", "+---+", "| a |", "+---+", "", 'I1121 19:04:37.438127 1 a.cc:1] "x"']
TROUBLE = ['W1121 19:04:37.438127 1 a.cc:1] "careful"', 'E1121 19:04:37.438127 1 a.cc:1] "failed"', "at line 5"]


def test_a_program_that_asks_for_info_sees_trouble_alone(capsys, records):
    logging.getLogger("pytriton").setLevel(logging.INFO)
    try:
        fill(ServerLog(), START + TROUBLE)
    finally:
        logging.getLogger("pytriton").setLevel(logging.NOTSET)
    assert records.texts() == ["careful", "failed\nat line 5"]
    assert capsys.readouterr().out == ""


def test_what_python_models_print_is_copied_to_standard_output(capsys, records):
    fill(ServerLog(), [*START, "loading weights", "done"])
    assert capsys.readouterr().out == "loading weights\ndone\n"
    assert records.records == []


def test_what_python_models_print_is_a_record_once_the_logger_is_configured(capsys, records):
    LOGGER.setLevel(logging.INFO)
    fill(ServerLog(), [*START, "loading weights", "done"])
    assert records.texts() == ["loading weights\ndone"]
    assert capsys.readouterr().out == ""


def test_a_verbose_log_is_copied_to_standard_output(capsys, records):
    fill(ServerLog(verbose=True), START + TROUBLE)
    assert capsys.readouterr().out.splitlines() == START + TROUBLE
    assert records.records == []


def test_a_verbose_log_becomes_records_where_debug_is_logged(capsys, records):
    LOGGER.setLevel(logging.DEBUG)
    fill(ServerLog(verbose=True), START + TROUBLE)
    assert records.texts() == ["+---+\n| a |\n+---+", "x", "careful", "failed\nat line 5"]
    assert capsys.readouterr().out == ""


def fill(log, lines):
    for line in lines:
        log.add(line)
    log.flush()


def test_a_level_of_the_logger_turns_lines_into_records(capsys, records):
    LOGGER.setLevel(logging.INFO)
    log = ServerLog()
    log.add('W1121 19:04:37.438127 31030 server.cc:241] "careful"')
    log.flush()
    (record,) = records.records
    assert (record.name, record.levelno, record.getMessage()) == ("pytriton.server", logging.WARNING, "careful")
    assert (record.filename, record.lineno, record.process) == ("server.cc", 241, 31030)
    written = datetime.fromtimestamp(record.created, timezone.utc)
    assert (written.month, written.day, written.hour, written.microsecond) == (11, 21, 19, 438127)
    assert record.msecs == pytest.approx(438.127)
    assert capsys.readouterr().out == ""


def test_a_handler_of_the_logger_turns_lines_into_records(capsys):
    handler = Records()
    LOGGER.addHandler(handler)
    try:
        log = ServerLog()
        log.add("W1121 19:04:37.438127 31030 server.cc:241] careful")
        log.flush()
    finally:
        LOGGER.removeHandler(handler)
    assert handler.texts() == ["careful"]
    assert capsys.readouterr().out == ""


def test_what_is_below_the_level_is_dropped(records):
    LOGGER.setLevel(logging.ERROR)
    log = ServerLog()
    for letter in "IWE":
        log.add(f"{letter}1121 19:04:37.438127 31030 server.cc:241] {letter}")
    log.flush()
    assert records.texts() == ["E"]


def test_the_lines_of_a_table_belong_to_the_record_before(records):
    LOGGER.setLevel(logging.DEBUG)
    log = ServerLog()
    table = ["+---+", "| a |", "+---+"]
    for line in ["I1121 19:04:37.438127 1 a.cc:1] ", *table, "", "I1121 19:04:37.438127 1 a.cc:2] next"]:
        log.add(line)
    log.flush()
    assert records.texts() == ["\n".join(table), "next"]


def test_a_line_of_its_own_is_a_record(records):
    LOGGER.setLevel(logging.INFO)
    log = ServerLog()
    log.add("Signal (2) received.")
    log.flush()
    log.flush()
    assert records.texts() == ["Signal (2) received."]


def test_a_record_that_waits_comes_before_what_is_copied(capsys, records):
    LOGGER.setLevel(logging.DEBUG)
    log = ServerLog()
    log.add("I1121 19:04:37.438127 1 a.cc:1] first")
    LOGGER.setLevel(logging.NOTSET)
    logging.getLogger("pytriton").setLevel(logging.DEBUG)
    try:
        log.add("second")
    finally:
        logging.getLogger("pytriton").setLevel(logging.NOTSET)
    assert records.texts() == ["first"]
    assert capsys.readouterr().out == "second\n"


def test_a_filter_that_fails_does_not_end_the_reading(capsys, records):
    def broken(record):
        raise RuntimeError("the filter is broken")

    LOGGER.setLevel(logging.INFO)
    LOGGER.addFilter(broken)
    log = ServerLog()
    try:
        log.add("first")
        log.flush()
    finally:
        LOGGER.removeFilter(broken)
    assert "the filter is broken" in capsys.readouterr().err
    log.add("second")
    log.flush()
    assert records.texts() == ["second"]


def test_lines_are_read_until_the_end_even_without_a_last_newline():
    reader, writer = os.pipe()
    os.write(writer, b"one\ntw")
    os.write(writer, b"o\n\nth\xffree")
    os.close(writer)
    assert [*read_lines(reader, lambda: None)] == ["one", "two", "", "th\N{REPLACEMENT CHARACTER}ree"]
    os.close(reader)


def test_a_pause_is_told():
    reader, writer = os.pipe()
    pauses = []

    def on_pause():
        pauses.append(True)
        os.write(writer, b"two\n")
        os.close(writer)

    os.write(writer, b"one\n")
    assert [*read_lines(reader, on_pause)] == ["one", "two"]
    assert len(pauses) == 1
    os.close(reader)
