"""What requests cost is charged before it is spent: memory to one account of the process, time of its thread in turns.

What is charged: the bytes of a body as they come, once more while its pieces are put together, what it is inflated to,
the parser's index and Python's objects while it is converted, the arrays of the request, and copies that are sent.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from pytriton.python_proxy.memory import Memory
from pytriton.rest.errors import RETRY_AFTER_S, RestError
from pytriton.rest.json_arrays import no_charge
from pytriton.rest.waits import ClientDisconnectedError
from pytriton.signature.json_texts import size_of

if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    from async_timeout import timeout

__all__ = ["SMALL_BYTES", "Account", "Charges", "Costs", "Turns", "Unread", "charges_of", "default_limit_bytes"]

SMALL_BYTES = 64 * 1024
"""What is smaller takes so little time and memory that it is done at once."""

PIECE_BYTES = 256 * 1024  # of an answer
MOST_UNREAD_BYTES = 256 * 2**20  # of a stream whose client does not read
SHARE_OF_MEMORY = 0.25
SHARE_OF_A_CLIENT = 0.75  # of the account; the rest is for others
SHARE_NOT_COUNTED = 1 / 16  # of the account: a text that takes less in any case need not be looked at
WORST_READ, WORST_TREE = 180, 96  # bytes for each of a text of brackets; see :class:`JsonSize`
LEAST_LIMIT_BYTES = 64 * 2**20

T = TypeVar("T")


def default_limit_bytes(processes: int) -> int:
    """A quarter of the memory that is available on the machine, or in the container, for all processes of an app."""
    return max(LEAST_LIMIT_BYTES, int(Memory().available_bytes() * SHARE_OF_MEMORY / processes))


class Account:
    """The memory that the requests in progress take. Thread-safe.

    Args:
        limit_bytes: For all of them.

    Attributes:
        limit_bytes: As given.
        used_bytes: By all of them.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.used_bytes = 0
        self.limit_bytes = limit_bytes
        self._limit_of_client_bytes = int(limit_bytes * SHARE_OF_A_CLIENT)
        self._clients: dict[str, int] = {}
        self._lock = threading.Lock()

    def charge(self, client: str, size: int, own: int) -> None:
        """Take memory.

        Args:
            client: Its address.
            size: Bytes.
            own: Bytes that the same request has taken already.

        Raises:
            RestError: There is not so much left. 413, if the request alone would take more than a client may.
        """
        with self._lock:
            of_client = self._clients.get(client, 0) + size
            if own + size > self._limit_of_client_bytes:
                text = f"the request would take more than {self._limit_of_client_bytes} bytes of memory"
                raise RestError(413, "BODY_TOO_LARGE", f"{text}, three quarters of the app's max_memory_bytes")
            if self.used_bytes + size > self.limit_bytes:
                raise _busy(503, "UNAVAILABLE", "requests in progress take all memory that they may")
            if of_client > self._limit_of_client_bytes:
                raise _busy(429, "TOO_MANY_REQUESTS", "your requests in progress take all memory that they may")
            self.used_bytes += size
            self._clients[client] = of_client

    def hold(self, client: str, size: int) -> None:
        """Take memory that is taken already, also beyond the limits: others then find less."""
        with self._lock:
            self.used_bytes += size
            self._clients[client] = self._clients.get(client, 0) + size

    def credit(self, client: str, size: int) -> None:
        """Give memory back."""
        with self._lock:
            self.used_bytes -= size
            left = self._clients.get(client, 0) - size
            if left > 0:
                self._clients[client] = left
            else:
                self._clients.pop(client, None)


def _busy(status: int, code: str, what: str) -> RestError:
    text = f"{what} (max_memory_bytes); try again later"
    return RestError(status, code, text, headers={"Retry-After": str(RETRY_AFTER_S)})


class Turns:
    """Runs what takes long on one thread, one function at a time: clients take turns, and the event loop goes on."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, "pytriton-large-requests")
        self._is_busy = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    async def run(self, client: str, function: Callable[[], T]) -> T:
        """The result of a function, which is called when it is the client's turn."""
        loop = asyncio.get_running_loop()
        if self._is_busy:
            turn: asyncio.Future[None] = loop.create_future()
            self._waiting.setdefault(client, deque()).append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():  # it was this one's turn
                    self._pass_on()
                raise
        self._is_busy = True
        work = loop.run_in_executor(self._executor, function)
        work.add_done_callback(self._end)
        return await asyncio.shield(work)  # a thread cannot be cancelled; the next one waits for its end

    def _end(self, work: asyncio.Future[Any]) -> None:
        if not work.cancelled():
            work.exception()  # whoever waited for it may have gone, and then nobody else asks for its error
        self._pass_on()

    def _pass_on(self) -> None:
        self._is_busy = False
        while self._waiting:
            client = next(iter(self._waiting))
            turns = self._waiting.pop(client)
            turn = turns.popleft()
            if turns:
                self._waiting[client] = turns  # behind the others
            if not turn.done():
                self._is_busy = True
                turn.set_result(None)
                return


class Charges:
    """What one request takes. Thread-safe, as far as one thread at a time charges.

    Args:
        turns: Of what takes long.
        client: The address of the request's client.
    """

    def __init__(self, account: Account, turns: Turns, client: str) -> None:
        self._account, self._turns, self._client = account, turns, client
        self._own = 0
        self._has_ended = False

    def charge(self, size: int) -> None:
        """Take memory until the request ends; raises RestError, see :meth:`Account.charge`."""
        if self._has_ended:  # its client has gone, and a thread still works for it
            raise RestError(503, "UNAVAILABLE", "the request has ended")
        self._account.charge(self._client, size, self._own)
        self._own += size

    def hold(self, size: int) -> None:
        """Take memory that is taken already."""
        self._account.hold(self._client, size)
        self._own += size

    def credit(self, size: int) -> None:
        """Give some of it back."""
        size = min(size, self._own)
        self._own -= size
        self._account.credit(self._client, size)

    @contextmanager
    def charged(self, size: int) -> Iterator[None]:
        """Take memory for a block."""
        self.charge(size)
        try:
            yield
        finally:
            self.credit(size)

    async def run(self, size: int, function: Callable[[], T]) -> T:
        """The result of a function, which is called at once if it has little to do.

        Args:
            size: Bytes that it reads.
            function: Runs on another thread if they are many; nothing else of this kind runs at the same time.
        """
        return function() if size < SMALL_BYTES else await self._turns.run(self._client, function)

    @contextmanager
    def reading(self, text: bytes) -> Iterator[Callable[[], None]]:
        """Take the memory for reading a JSON text, for a block; the function also that of Python's objects, once."""
        if len(text) < SMALL_BYTES:
            yield no_charge
            return
        if len(text) * (WORST_READ + WORST_TREE) <= self._account.limit_bytes * SHARE_NOT_COUNTED:
            read_bytes, tree_bytes = WORST_READ * len(text), WORST_TREE * len(text)
        else:
            size = size_of(text)
            read_bytes, tree_bytes = size.read_bytes, size.tree_bytes
        with ExitStack() as stack:
            stack.enter_context(self.charged(read_bytes))
            taken: list[int] = []

            def charge_objects() -> None:
                if not taken:
                    taken.append(tree_bytes)
                    stack.enter_context(self.charged(tree_bytes))

            yield charge_objects

    def close(self) -> None:
        """The request has ended."""
        self._has_ended = True
        self.credit(self._own)


class Unread:
    """What a client has not read of a stream: charged from ``SMALL_BYTES`` on, and bounded."""

    def __init__(self, charges: Charges) -> None:
        self._charges = charges
        self._size = self._charged = 0

    def grow(self, size: int) -> bool:
        """Count bytes that have come; False if they are too many, or there is no memory for them."""
        before = self._size
        self._size += size
        if before > MOST_UNREAD_BYTES:  # one response may be as long as it likes
            return False
        if self._size > max(self._charged, SMALL_BYTES):
            more = 2 * self._size - self._charged
            try:
                self._charges.charge(more)
            except RestError:
                return False
            self._charged += more
        return True

    def shrink(self, size: int) -> None:
        """Count bytes that were read, or dropped."""
        self._size -= size
        if self._charged > 4 * max(self._size, SMALL_BYTES) or not self._size:
            less = self._charged - 2 * self._size
            self._charges.credit(less)
            self._charged -= less


class Costs:
    """Opens the charges of each request, and closes them: a layer of the application.

    Large answers are charged as well, until their clients have read them, and end if those do not read.

    Args:
        timeout_s: Longest time for a client to read a piece of an answer, of some hundred kilobytes.
    """

    def __init__(self, app: Any, account: Account, timeout_s: float) -> None:
        self._app = app
        self._account = account
        self._timeout_s = timeout_s
        self._turns = Turns()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass one request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        charges = Charges(self._account, self._turns, client_of(scope))
        scope.setdefault("state", {})["charges"] = charges

        async def send_in_pieces(message: Any) -> None:
            body, more = message.get("body", b""), message.get("more_body", False)
            if len(body) > PIECE_BYTES:
                charges.hold(len(body))
                await self._send_pieces(send, body, more)
                charges.credit(len(body))
            elif more:
                await self._send_in_time(send, message)
            else:
                await send(message)

        try:
            await self._app(scope, receive, send_in_pieces)
        finally:
            charges.close()

    async def _send_pieces(self, send: Any, body: bytes, more: bool) -> None:
        """Send a body so that the server, which keeps what it was given, never has much of it."""
        view = memoryview(body)
        for start in range(0, len(body), PIECE_BYTES):
            end = start + PIECE_BYTES
            has_more = more or end < len(body)
            piece = {"type": "http.response.body", "body": bytes(view[start:end]), "more_body": has_more}
            await self._send_in_time(send, piece)

    async def _send_in_time(self, send: Any, message: Any) -> None:
        try:
            async with timeout(self._timeout_s):
                await send(message)
        except asyncio.TimeoutError:
            raise ClientDisconnectedError from None


def charges_of(scope: Any) -> Charges:
    """The charges of a request."""
    found: Charges = scope["state"]["charges"]
    return found


def client_of(scope: Any) -> str:
    """The address of a request's client: over a Unix socket, what the server's edge tells."""
    client = scope.get("client")
    if client and client[0]:
        return str(client[0])
    for name, value in reversed(scope["headers"]):
        if name == b"x-forwarded-for":
            return str(value.rpartition(b",")[2].strip().decode("latin-1"))
    return ""
