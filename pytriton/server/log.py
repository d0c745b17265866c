"""The server's log as records of :mod:`logging`."""

from __future__ import annotations

import json
import logging
import os
import re
import select
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

from pytriton.logs import get_logger

__all__ = ["LOGGER", "Line", "ServerLog", "parse_line", "read_lines"]

LOGGER = get_logger("pytriton.server")

# What the server calls INFO are details to the user of a program: its options, tables of what it found, each load.
LEVELS = {"V": logging.DEBUG, "I": logging.DEBUG, "W": logging.WARNING, "E": logging.ERROR, "F": logging.CRITICAL}
# The first three are harmless without an NVIDIA driver. The next is also the answer to the request that loads the
# model; the next says that a model's configuration came with the request, as RemoteTriton's do. The last is about a
# request over gRPC, which is refused, and clients could fill the log with it.
HARMLESS = (
    "CudaDriverHelper has not been initialized",
    "no pinned memory pool, falling back to non-pinned",
    "CUDA driver version is insufficient for CUDA runtime version",
    "failed to poll model",
    "model_config_content_name_ is empty",
    "contains invalid UTF-8 data when parsing a protocol buffer",
)
# I1121 19:04:37.437488 31030 server.cc:241] "text"
DEFAULT = re.compile(
    r"(?P<level>[VIWEF])(?P<time>\d{4} \d\d:\d\d:\d\d\.\d{6}) (?P<process>\d+) (?P<source>.+?)] ?(?P<text>.*)"
)
# 2026-11-21T19:04:37Z I 31030 server.cc:241] "text"
ISO = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ) (?P<level>[VIWEF]) (?P<process>\d+) (?P<source>.+?)] ?(?P<text>.*)"
)
# [Error] File: /path/otlp_http_client.cc:225 text; of the library that exports the server's traces
LIBRARY = re.compile(r"\[(?P<level>Debug|Info|Warning|Error)] File: (?P<source>\S+:\d+) ?(?P<text>.*)")
# [libprotobuf ERROR /path/wire_format_lite.cc:618] text; of the library that reads messages over gRPC
PROTOBUF = re.compile(r"\[libprotobuf (?P<level>INFO|WARNING|ERROR|FATAL) (?P<source>\S+:\d+)] ?(?P<text>.*)")

# In colours; of the library of the server's HTTP endpoint, for one that is a Unix socket
NO_DELAY = re.compile(r"\[\S+WARN\S+]\s+\S+evhtp\.c:(?P<number>\d+)\s.*NODELAY NOT SUPPORTED")

TABLE = ("", "+", "|")  # first characters of a table's lines

QUIET_S = 0.05
READ_BYTES = 65536


class Line(NamedTuple):
    """The first line of a record.

    Attributes:
        level: Of :mod:`logging`.
        time: When it was written; None if the line does not say.
        process: Id of the process that wrote it; None if the line does not say.
        file: Source file of the server, empty if the line does not say.
        number: Line in that file.
        text: The message, or its beginning.
    """

    level: int
    time: datetime | None
    process: int | None
    file: str
    number: int
    text: str


def parse_line(line: str, now: datetime | None = None) -> Line | None:
    """Read the beginning of a record; None for a line that continues one, or that is no record at all.

    Args:
        line: Of the server's log, in either of its formats, whose times are UTC.
        now: Says which year it is.
    """
    match = DEFAULT.match(line) or ISO.match(line) or LIBRARY.match(line) or PROTOBUF.match(line)
    if match is None and (harmless := NO_DELAY.match(line)):
        return Line(logging.DEBUG, None, None, "evhtp.c", int(harmless["number"]), "no TCP_NODELAY for Unix sockets")
    if match is None:
        return None
    parts = match.groupdict()
    file, _, number = parts["source"].rpartition(":")
    if not number.isdecimal():
        return None
    return Line(
        logging.DEBUG
        if any(text in parts["text"] for text in HARMLESS)
        else LEVELS[parts["level"][0].replace("D", "V")],
        _time(parts["time"], now or datetime.now(timezone.utc)) if "time" in parts else None,
        int(parts["process"]) if "process" in parts else None,
        file,
        int(number),
        _unquoted(parts["text"]),
    )


def read_lines(descriptor: int, on_pause: Callable[[], None]) -> Iterator[str]:
    """The lines of a pipe, until its end.

    Args:
        on_pause: Called when no line has come for a moment.
    """
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    rest, paused = b"", True
    while True:
        if not poll.poll(None if paused else QUIET_S * 1000):
            on_pause()
            paused = True
            continue
        data = os.read(descriptor, READ_BYTES)
        *lines, rest = (rest + data).split(b"\n")
        if not data and rest:
            lines, rest = [rest], b""
        for line in lines:
            yield line.decode("utf-8", "replace")
        if not data:
            return
        paused = False


class ServerLog:
    """Makes records of the logger ``pytriton.server`` of the server's lines.

    A line without a beginning of its own belongs to the record before, if that is a table, a warning or an error. Other
    such lines, for example what the Python models of a repository print, are copied to standard output, or become
    records of the level INFO once the program has given that logger a level or a handler.

    Args:
        verbose: The user has asked the server for a verbose log: all lines are copied, unless DEBUG is logged.
    """

    def __init__(self, verbose: bool = False) -> None:
        self._verbose = verbose
        self._line: Line | None = None
        self._more: list[str] = []

    def add(self, line: str) -> None:
        """Take one line."""
        beginning = parse_line(line)
        if self._verbose and not LOGGER.isEnabledFor(logging.DEBUG):
            self.flush()
            _copy(line)
        elif beginning is None and self._line is not None and (self._line.level > logging.DEBUG or line[:1] in TABLE):
            self._more.append(line)
        else:
            self.flush()
            if beginning is None and line and not (LOGGER.level or LOGGER.handlers):
                _copy(line)
            elif beginning is not None or line:
                self._line = beginning or Line(logging.INFO, None, None, "", 0, line)

    def flush(self) -> None:
        """Log the record whose lines have come, if any: it is complete."""
        line, more = self._line, self._more
        self._line, self._more = None, []
        if line is None or not LOGGER.isEnabledFor(line.level):
            return
        text = "\n".join([line.text, *more]).strip("\n")
        record = LOGGER.makeRecord(LOGGER.name, line.level, line.file, line.number, text, (), None)
        record.processName = record.threadName = "tritonserver"
        if line.process is not None:
            record.process = line.process
        if line.time is not None:
            record.relativeCreated += (line.time.timestamp() - record.created) * 1000
            record.created = line.time.timestamp()
            record.msecs = line.time.microsecond / 1000
        try:
            LOGGER.handle(record)
        except Exception:  # a filter's: else this thread would end, and the server would wait for its output to be read
            traceback.print_exc()


def _copy(line: str) -> None:
    with suppress(OSError, ValueError):  # our own output may be closed
        print(line, flush=True)


def _time(text: str, now: datetime) -> datetime:
    if text.endswith("Z"):
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    time = datetime.strptime(f"{now.year}{text}", "%Y%m%d %H:%M:%S.%f").replace(tzinfo=timezone.utc)
    return time if time < now + timedelta(days=1) else time.replace(year=now.year - 1)  # around New Year


def _unquoted(text: str) -> str:
    """The server writes most messages as JSON."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        with suppress(ValueError):
            return str(json.loads(text))
        return text[1:-1]
    return text
