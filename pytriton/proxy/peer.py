"""Whether the process at the other end of a Unix socket may be there."""

from __future__ import annotations

import os
import socket
import struct

CREDENTIALS = struct.Struct("iII")  # struct ucred: process, user, group
ROOT = 0


def stranger(connection: socket.socket, *expected: int) -> str | None:
    """Who is at the other end, if it is a process neither of this user nor of root; None if all is well.

    The kernel tells, so it cannot be forged: of the process that connected or, to that one, of the one that listens.

    Args:
        connection: To the other end.
        expected: Ids of further users who may be there.
    """
    size = CREDENTIALS.size
    pid, user, _ = CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return None if user in (ROOT, os.geteuid(), *expected) else f"process {pid} of user {user}"
