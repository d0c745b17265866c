"""Loads on OpenAI's routes: ``python scripts/chats.py KIND json --port 8080`` measures one kind, and prints JSON.

``streams`` reads chats of so many tokens each, on so many connections, again and again; ``embeddings`` sends single
texts. Bytes are counted rather than parsed, so that the generator takes little of the cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable
from statistics import quantiles
from typing import Any

from payloads import HOST, LoadError

__all__ = ["Chats"]

TOKEN, FIRST = b'"content"', b'"0 "'
DONE = b"[DONE]"
END = b"\r\n0\r\n\r\n"  # of a chunked body
READ_BYTES = 1 << 18


class Chats:
    """Connections that make requests one after the other, until a time.

    Args:
        port: Of the app.
        connections: How many.
    """

    def __init__(self, port: int, connections: int) -> None:
        self._port = port
        self._connections = connections

    async def streams(self, seconds: float, count: int, pause_s: float) -> dict[str, float]:
        """Tokens per second, and the time to the first one of a stream."""
        firsts: list[float] = []
        message = {"role": "user", "content": f"{count} {pause_s}"}
        head = _request("/v1/chat/completions", {"model": "chat", "stream": True, "messages": [message]})

        async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
            began = time.perf_counter()
            writer.write(head)
            length = _length(await reader.readuntil(b"\r\n\r\n"))
            data = bytearray()
            has_first = False
            while not (data.endswith(END) if length is None else len(data) == length):
                data += await _piece(reader)
                if not has_first and FIRST in data:  # an event with the role may come before it
                    has_first = True
                    firsts.append(time.perf_counter() - began)
            if DONE not in data or data.count(TOKEN) < count:
                raise LoadError(f"a stream of {count} tokens ended with {bytes(data[-200:])!r}")
            return count

        rate = await self._repeat(seconds, once)
        return {
            "tokens/s": rate,
            "first token p50 ms": _quantile(firsts, 50),
            "first token p99 ms": _quantile(firsts, 99),
        }

    async def embeddings(self, seconds: float) -> dict[str, float]:
        """Texts per second, one text in each request."""
        times: list[float] = []
        head = _request("/v1/embeddings", {"model": "embed", "input": "a text of some words"})

        async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
            began = time.perf_counter()
            writer.write(head)
            length = _length(await reader.readuntil(b"\r\n\r\n"))
            assert length is not None
            body = await reader.readexactly(length)
            if b'"embedding"' not in body:
                raise LoadError(f"embeddings: {body[:200]!r}")
            times.append(time.perf_counter() - began)
            return 1

        return {"texts/s": await self._repeat(seconds, once), "p50 ms": _quantile(times, 50)}

    async def _repeat(self, seconds: float, once: Callable[[Any, Any], Awaitable[int]]) -> float:
        end = time.perf_counter() + seconds
        done = 0

        async def connection() -> None:
            nonlocal done
            reader, writer = await asyncio.open_connection(HOST, self._port, limit=READ_BYTES)
            try:
                while time.perf_counter() < end:
                    count = await once(reader, writer)
                    done += count
            finally:
                writer.close()

        began = time.perf_counter()
        await asyncio.gather(*(connection() for _ in range(self._connections)))
        return done / (time.perf_counter() - began)


async def _piece(reader: asyncio.StreamReader) -> bytes:
    data = await reader.read(READ_BYTES)
    if not data:
        raise LoadError("the connection was closed")
    return data


def _length(head: bytes) -> int | None:
    """The length of a body; None if it is chunked. A stream that has already ended may have a length, too."""
    found = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
    return int(found[1]) if found else None


def _request(path: str, body: object) -> bytes:
    data = json.dumps(body).encode()
    headers = f"host: {HOST}\r\ncontent-type: application/json\r\ncontent-length: {len(data)}"
    return f"POST {path} HTTP/1.1\r\n{headers}\r\n\r\n".encode() + data


def _quantile(seconds: list[float], percent: int) -> float:
    return 1e3 * (quantiles(seconds, n=100)[percent - 1] if len(seconds) > 1 else seconds[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["streams", "embeddings"])
    parser.add_argument("protocol", choices=["http"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--connections", type=int, default=1, help="requests in flight (1)")
    parser.add_argument("--seconds", type=float, default=5, help="of the measurement (5)")
    parser.add_argument("--warmup", type=float, default=1, help="seconds before the measurement (1)")
    parser.add_argument("--count", type=int, default=500, help="tokens of a stream (500)")
    parser.add_argument("--pause", type=float, default=0, help="seconds after each token (0)")
    chosen = parser.parse_args()
    chats = Chats(chosen.port, chosen.connections)

    async def measure(seconds: float) -> dict[str, float]:
        if chosen.kind == "streams":
            return await chats.streams(seconds, chosen.count, chosen.pause)
        return await chats.embeddings(seconds)

    if chosen.warmup:
        asyncio.run(measure(chosen.warmup))
    print(json.dumps(asyncio.run(measure(chosen.seconds))))


if __name__ == "__main__":
    main()
