"""What is known against a version of the server, and when to say so."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterable

from pytriton.server.installation import Installation

__all__ = ["BUNDLED_VERSION", "warn_exposed", "weaknesses_of"]

LOGGER = logging.getLogger("pytriton.triton")

BUNDLED_VERSION = "2.51.0"
FIXED = (2, 62)  # release 25.10; docs/security.md lists what was published, also after it
_told = False


def weaknesses_of(version: str) -> str:
    """One line on the known weaknesses of a server, by its version such as ``2.51.0``; empty if we know of none."""
    try:
        numbers = tuple(map(int, version.split(".")[:2]))
    except ValueError:
        return ""
    if numbers >= FIXED:
        return ""
    return (
        f"Triton {version} has published weaknesses. Where strangers can reach its ports, use a newer server "
        "(TRITONSERVER_HOME) or put a proxy in front: docs/security.md, Known weaknesses of the bundled server"
    )


def warn_exposed(installation: Installation, addresses: Iterable[str]) -> None:
    """Warn, once per process, that a bundled server with known weaknesses listens beyond this machine.

    Args:
        installation: The server.
        addresses: Where its endpoints listen.
    """
    global _told
    text = weaknesses_of(BUNDLED_VERSION)
    if text and installation.is_bundled and not _told and not all(map(_is_loopback, addresses)):
        _told = True
        LOGGER.warning("%s", text)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
