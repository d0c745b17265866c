"""Requests that a browser sends for a page that may not call.

A browser names the page's origin in each request that could change something, and lets no page choose the header
``Host``. So a request with an ``Origin`` has to come from a page of this app, or of an origin in ``RestConfig.cors``.
What other programs send has no ``Origin``.

A page elsewhere could still have its own host's name lead to this machine (DNS rebinding). So pages, ``/mcp``, and
apps for this machine alone are reached under known names: addresses, ``localhost``, the machine's name, and those in
``RestConfig.hosts``. If there are such, the app's own pages call under a known name alone.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from pytriton.rest.config import RestConfig
from pytriton.rest.errors import RestError
from pytriton.security import APPLICATION_ROUTES, is_loopback
from pytriton.server.launch import names_of_machine

__all__ = ["Sites"]

ANY = "*"
READING = ("GET", "HEAD", "OPTIONS")


class Sites:
    """Checks the headers that browsers set."""

    def __init__(self, config: RestConfig) -> None:
        self._origins = {*config.cors}
        self._hosts = {each.lower() for each in (*config.hosts, *names_of_machine(), config.address or "")}
        self._has_names, self._knows_all = bool(config.hosts), ANY in config.hosts
        self._is_local = is_loopback(config.address or "")

    def check(self, scope: Any, path: str) -> None:
        """Check a request to a route.

        Args:
            path: Of the route, as in the table of :mod:`pytriton.security`.

        Raises:
            RestError: A page may not call this.
        """
        headers = dict(scope["headers"])
        route = APPLICATION_ROUTES[path]
        if route.known_names or (self._is_local and route.group != "health"):
            self._check_host(headers, scope)
        if scope["method"] not in READING or path == "/mcp":
            self._check_origin(headers, scope)

    def _check_host(self, headers: Mapping[bytes, bytes], scope: Any) -> None:
        host = headers.get(b"host", b"").decode("latin-1")
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0].lower()
        if not name or self._knows_all or name == "localhost" or name.endswith(".localhost") or name in self._hosts:
            return
        if _is_address(name) or name == str((scope.get("server") or ("",))[0]).lower():
            return
        raise RestError(403, "FORBIDDEN", f"this app is not known as {name!r:.200}; see RestConfig.hosts")

    def _check_origin(self, headers: Mapping[bytes, bytes], scope: Any) -> None:
        origin, site = (headers.get(name, b"").decode("latin-1") for name in (b"origin", b"sec-fetch-site"))
        if (not origin and site in ("", "none")) or ANY in self._origins or origin in self._origins:
            return
        _, is_url, host = origin.lower().partition("://")
        # Of a page that was fetched in plain HTTP, a browser does not say whether it is of another site.
        is_same = is_url and not site and host == headers.get(b"host", b"").decode("latin-1").lower()
        if site == "same-origin" or is_same:
            if self._has_names:
                self._check_host(headers, scope)
            return
        raise RestError(403, "FORBIDDEN", f"pages of {origin or 'other sites'} may not call this; see RestConfig.cors")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
