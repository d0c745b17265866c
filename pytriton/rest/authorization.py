"""What the routes of the application ask for, and who gets it. All is pure ASGI.

It is decided where the router has found the route, so that no spelling of a path leads around it.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence
from typing import Any

from starlette.datastructures import URLPath
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pytriton.rest.config import RestConfig
from pytriton.rest.errors import RestError
from pytriton.rest.openai.errors import refuse
from pytriton.rest.permits import KeyRing, Permit, check_all_models
from pytriton.rest.sites import Sites
from pytriton.security import APPLICATION_ROUTES, TRITON_ACCESS_HEADER
from pytriton.server.access import Rule
from pytriton.server.endpoints import CLOSED, OPEN, TOKEN

__all__ = ["Access", "Guarded", "GuardedRoute", "has_token"]

HEALTH = "health"
FOR_OPERATORS = "logging", "model-repository"  # the log and commands, see Pages
FOR_KEYS = "inference", "metadata"  # what API keys are for: calling models, and the lists of them

Headers = Iterable[tuple[bytes, bytes]]


class Access:
    """What the routes of an application ask for, by the groups of :mod:`pytriton.security`.

    A group asks for what the server's rule of that group does; with an access token or API keys of the app, all do
    but health. The tokens of the server and of the app open all groups, and API keys those for calling models.

    Args:
        keys: The API keys.
        rules: Those of the server, for HTTP.
        operator_token: The server's access token.
    """

    def __init__(
        self, config: RestConfig, keys: KeyRing, rules: Sequence[Rule] = (), operator_token: str | None = None
    ) -> None:
        self._token = config.access_token
        self._tokens = [each for each in (config.access_token, operator_token) if each is not None]
        self._keys = keys
        self._has_keys = config.api_keys is not None
        self._rules = {group: rule for rule in rules for group in rule.endpoints}

    def asks(self, group: str | None) -> bool:
        """Whether a group asks for anything."""
        if group is None:
            return False
        return group in self._rules or (group != HEALTH and (self._token is not None or self._has_keys))

    def asked(self) -> list[str]:
        """All groups of the application that ask for something."""
        return sorted({each.group for each in APPLICATION_ROUTES.values() if each.group and self.asks(each.group)})

    def needs(self, group: str) -> str:
        """What a group asks for, in the words of :class:`pytriton.server.endpoints.Exposure`."""
        if group in FOR_OPERATORS:
            return TOKEN if self._tokens else CLOSED
        if not self.asks(group):
            return OPEN
        rule = self._rules.get(group)
        ways = [TOKEN] if self._tokens else []
        if rule is not None and rule.header.lower() != TRITON_ACCESS_HEADER:
            ways.append(f"header {rule.header}")
        return " or ".join([*ways, *(["key"] if self.takes_keys(group) else [])])

    def takes_keys(self, group: str) -> bool:
        """Whether API keys open a group."""
        return self._has_keys and (group in FOR_KEYS or group not in self._rules)

    def permit(self, scope: Scope, group: str | None) -> Permit | None:
        """Check the credentials of a request; returns the permit of its API key, if that has opened the group.

        Raises:
            RestError: They are missing or wrong.
        """
        if group is None or not self.asks(group):
            return None
        given = credentials(scope["headers"])
        rule = self._rules.get(group)
        tokens = self._tokens
        if rule is not None and rule.header.lower() == TRITON_ACCESS_HEADER:
            tokens = [*tokens, rule.value]
        elif rule is not None and _has_header(scope["headers"], rule):
            return None
        if _is_one_of(given, tokens):
            return None
        if self.takes_keys(group):
            for each in given:
                if (permit := self._keys.find(each)) is not None:
                    if group not in FOR_KEYS:
                        check_all_models(permit)
                    return permit
        raise self._refusal(rule, group, is_wrong=bool(given))

    def _refusal(self, rule: Rule | None, group: str, *, is_wrong: bool) -> RestError:
        if rule is not None and rule.header.lower() != TRITON_ACCESS_HEADER and not self.takes_keys(group):
            message = f"this needs the header '{rule.header}'"
        else:
            what = "an API key" if self.takes_keys(group) and self._token is None else "the access token"
            message = f"this needs {what}, as the header 'Authorization: Bearer <token>'"
            if is_wrong:
                message += "; the one that was sent is wrong"
        return RestError(401, "UNAUTHORIZED", message, headers={"WWW-Authenticate": "Bearer"})


class GuardedRoute(BaseRoute):
    """A route that answers requests with the credentials that its group asks for.

    Args:
        route: The route, whose path is in the table of :mod:`pytriton.security`.
        sites: Says which pages may call it.

    Raises:
        KeyError: The path is not in the table.
    """

    def __init__(self, route: Route, access: Access, sites: Sites) -> None:
        self.path, self.endpoint = route.path, route.endpoint
        self.group = APPLICATION_ROUTES[route.path].group
        self._route = route
        self._guarded = Guarded(route.handle, access, self.group)
        self._sites = sites

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether a request is for this route."""
        return self._route.matches(scope)

    def url_path_for(self, name: str, /, **path_params: Any) -> URLPath:
        """As :meth:`Route.url_path_for`."""
        return self._route.url_path_for(name, **path_params)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        try:
            self._sites.check(scope, self.path)
        except RestError as error:
            scope.pop("endpoint", None)
            return await refuse(scope, send, error)
        await self._guarded(scope, receive, send)


class Guarded:
    """An ASGI application that asks for credentials first.

    Args:
        group: Of the application's endpoints.
    """

    def __init__(self, app: ASGIApp, access: Access, group: str | None) -> None:
        self._app = app
        self._access = access
        self._group = group

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check one request, and answer it."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        try:
            permit = self._access.permit(scope, self._group)
            if permit is not None and scope["method"] == "POST":
                permit.take()
        except RestError as error:
            scope.pop("endpoint", None)  # metrics shall have no names that a stranger made up
            return await refuse(scope, send, error)
        if permit is None:
            return await self._app(scope, receive, send)
        await self._with_permit(permit, scope, receive, send)

    async def _with_permit(self, permit: Permit, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request of a key, and tell it what is left."""
        scope.setdefault("state", {})["permit"] = permit

        async def send_with_limits(message: Message) -> None:
            if message["type"] == "http.response.start":
                limits = [(name.encode(), value.encode()) for name, value in permit.headers().items()]
                message = {**message, "headers": [*message.get("headers", ()), *limits]}
            await send(message)

        await self._app(scope, receive, send_with_limits)


def credentials(headers: Headers) -> list[bytes]:
    """The tokens of a request: ``Authorization: Bearer``, and the header that the server's own endpoints take."""
    found = []
    for name, value in headers:
        if name == b"authorization":
            scheme, _, token = value.partition(b" ")
            if scheme.lower() == b"bearer":
                found.append(token.strip())
        elif name == TRITON_ACCESS_HEADER.encode():
            found.append(value)
    return found


def has_token(headers: Headers, tokens: Iterable[str]) -> bool:
    """Whether a request has one of these tokens."""
    return _is_one_of(credentials(headers), tokens)


def _is_one_of(given: Iterable[bytes], tokens: Iterable[str]) -> bool:
    # Of all: each refusal takes the same time.
    equal = [hmac.compare_digest(one, each.encode()) for one in given for each in tokens]
    return any(equal)


def _has_header(headers: Headers, rule: Rule) -> bool:
    wanted = rule.header.lower().encode("latin-1", "replace")
    return _is_one_of((value for name, value in headers if name == wanted), [rule.value])
