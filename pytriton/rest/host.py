"""The channel between a process of the app and the process that runs it: questions one way, answers the other.

It is a pair of sockets that only these two processes have. A message is a line of JSON::

    {"number": 1, "question": "scale", "arguments": {"model": "sentiment", "count": 2}}
    {"number": 1, "answer": null}
    {"number": 2, "error": "model 'sentimnt' is not bound", "code": "INVALID_ARG"}
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any, Protocol

from pytriton.exceptions import PyTritonError
from pytriton.logs import get_logger

__all__ = ["Answer", "Channel", "Direct", "Host", "HostError", "serve"]

LOGGER = get_logger("pytriton.rest")

MOST_LINE_BYTES = 16 * 2**20

Answer = Callable[..., Any]
"""Answers a question with its arguments by JSON; raises PyTritonError if it cannot. From any thread."""


class HostError(PyTritonError):
    """The hosting process refuses a command, or has gone."""


class Host(Protocol):
    """The hosting process, as the application of the app sees it."""

    async def ask(self, question: str, **arguments: Any) -> Any:
        """Ask a question, or give a command, and wait for the answer.

        Raises:
            HostError: It is refused.
        """


class Direct:
    """The hosting process is this one."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def ask(self, question: str, **arguments: Any) -> Any:
        """As :meth:`Host.ask`."""
        try:
            return await asyncio.to_thread(self._answer, question, **arguments)
        except PyTritonError as error:
            raise HostError(str(error)) from error


class Channel:
    """The end of a process of the app.

    Args:
        connection: To the hosting process.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._numbers = count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._opened: asyncio.Future[asyncio.StreamWriter] | None = None

    async def ask(self, question: str, **arguments: Any) -> Any:
        """As :meth:`Host.ask`."""
        if self._opened is None:
            self._opened = asyncio.ensure_future(self._open())
        writer = await asyncio.shield(self._opened)
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        line = json.dumps({"number": number, "question": question, "arguments": arguments})
        try:
            writer.write(line.encode() + b"\n")
            await writer.drain()
            return await answer
        except OSError as error:
            raise HostError("the hosting process has gone") from error
        finally:
            del self._waiting[number]

    async def close(self) -> None:
        """Close the connection; questions that wait for an answer fail."""
        if self._opened is None:
            self._socket.close()
            return
        with suppress(OSError):
            (await self._opened).close()
            await self._reading

    async def _open(self) -> asyncio.StreamWriter:
        reader, writer = await asyncio.open_connection(sock=self._socket, limit=MOST_LINE_BYTES)
        self._reading = asyncio.ensure_future(self._read(reader))
        return writer

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with suppress(OSError, ValueError):  # a line that is too long ends the channel
            while line := await reader.readline():
                message = json.loads(line)
                waiting = self._waiting.get(message["number"])
                if waiting is None or waiting.done():
                    continue
                if "error" in message:
                    waiting.set_exception(HostError(message["error"]))
                else:
                    waiting.set_result(message["answer"])
        for each in self._waiting.values():
            if not each.done():
                each.set_exception(HostError("the hosting process has gone"))


def serve(connection: socket.socket, answer: Answer) -> None:
    """The end of the hosting process: answer questions until the other process has gone. Each has its own thread.

    Args:
        connection: To a process of the app; it is closed at the end.
    """
    sending = threading.Lock()

    def reply(number: int, question: str, arguments: dict[str, Any]) -> None:
        try:
            line = json.dumps({"number": number, "answer": answer(question, **arguments)})
        except PyTritonError as error:
            line = json.dumps({"number": number, "error": str(error)})
        except BaseException as error:
            LOGGER.exception("the command %s failed", question)
            line = json.dumps({"number": number, "error": f"{type(error).__name__}: {error}"})
        with sending, suppress(OSError):  # nobody waits for it any more
            connection.sendall(line.encode() + b"\n")

    with connection, connection.makefile("rb") as lines, suppress(OSError):
        for line in lines:
            message = json.loads(line)
            arguments = message["number"], message["question"], message["arguments"]
            threading.Thread(target=reply, args=arguments, name="pytriton-console", daemon=True).start()
