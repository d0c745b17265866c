"""Two ends of a channel over a real socket."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from pytriton.wire.connect import accept, connect, short_path

TIMEOUT_S = 30.0


def listen(path):
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with short_path(str(path)) as address:
        listener.bind(address)
    listener.listen()
    return listener


def pair_of(path):
    """A connected proxy's and worker's channel, and what the proxy told."""
    with closing(listen(path)) as listener, ThreadPoolExecutor(1) as pool:
        connecting = pool.submit(connect, str(path), {"model": "m"}, TIMEOUT_S)
        hello, worker = accept(listener.accept()[0], TIMEOUT_S)
        return connecting.result(), worker, hello
