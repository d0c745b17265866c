"""A relay between clients and a server, which remembers what they said, and may speak TLS to the clients."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress

LOCALHOST = "127.0.0.1"


class Relay:
    """What has passed in each direction, of all connections together; the relay listens on ``port``."""

    def __init__(self) -> None:
        self.port = 0
        self.to_server = bytearray()
        self.to_client = bytearray()


@contextmanager
def relay(server_port: int, context: ssl.SSLContext | None = None) -> Iterator[Relay]:
    """Relay to a port of this machine until the end of the block.

    Args:
        server_port: Where the server listens.
        context: Speak TLS to the clients.
    """
    loop = asyncio.new_event_loop()
    listening: Future[Relay] = Future()
    ended = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(_serve(server_port, context, listening, ended),))
    thread.start()
    try:
        yield listening.result()
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()


async def _serve(
    server_port: int, context: ssl.SSLContext | None, listening: Future[Relay], ended: asyncio.Event
) -> None:
    seen = Relay()
    pumps: set[asyncio.Task[None]] = set()

    async def talk(client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        server, to_server = await asyncio.open_connection(LOCALHOST, server_port)
        pumps.add(asyncio.create_task(_pump(client, to_server, seen.to_server)))
        pumps.add(asyncio.create_task(_pump(server, to_client, seen.to_client)))

    listener = await asyncio.start_server(talk, LOCALHOST, 0, ssl=context)
    seen.port = listener.sockets[0].getsockname()[1]
    listening.set_result(seen)
    await ended.wait()
    listener.close()
    for pump in pumps:
        pump.cancel()
    await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, seen: bytearray) -> None:
    try:
        while data := await source.read(65536):
            seen += data
            sink.write(data)
            await sink.drain()
    finally:
        sink.close()
        with suppress(OSError):
            await sink.wait_closed()
