"""``/openapi.json``, and ``/docs``: the page that shows the routes and tries them out, without any other host."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from html import escape
from pathlib import Path

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route

from pytriton.rest.authorization import Access
from pytriton.rest.models import Model
from pytriton.rest.openapi import describe
from pytriton.rest.permits import may_call

__all__ = ["routes"]

STATIC = Path(__file__).with_name("static")
FILES = {
    "docs.css": STATIC / "docs.css",
    "docs.js": STATIC / "docs.js",
    "swagger-ui-bundle.js": STATIC / "swagger-ui" / "swagger-ui-bundle.js",
    "swagger-ui.css": STATIC / "swagger-ui" / "swagger-ui.css",
}
MISSING = (
    "Swagger UI is not part of this installation, because it was built without its binaries; /openapi.json has the "
    "description of the routes"
)
POLICY = "; ".join(
    [
        "default-src 'none'",
        "connect-src 'self'",
        "font-src 'self' data:",
        "frame-ancestors 'none'",
        "img-src 'self' data:",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",  # Swagger UI sets styles of elements
    ]
)
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Models</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="{root}/docs/swagger-ui.css">
<link rel="stylesheet" href="{root}/docs/docs.css">
<script src="{root}/docs/docs.js"></script>
</head>
<body>
<p class="back"><a href="{root}/">Dashboard</a></p>
<div id="routes" data-url="{root}/openapi.json"></div>
<script src="{root}/docs/swagger-ui-bundle.js"></script>
</body>
</html>
"""


async def page(request: Request) -> Response:
    """The page itself."""
    if not FILES["swagger-ui-bundle.js"].is_file():
        raise HTTPException(501, MISSING)
    return HTMLResponse(
        PAGE.format(root=escape(_root_path(request))),
        headers={
            "Content-Security-Policy": POLICY,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        },
    )


def _root_path(request: Request) -> str:
    """The path below which callers find the app: where it is mounted, and what a proxy in front of it removes."""
    return str(request.scope.get("root_path", "")).rstrip("/")


async def file(request: Request) -> Response:
    """A file of the page."""
    path = FILES.get(request.path_params["name"])
    if path is None or not path.is_file():
        raise HTTPException(404, "no such file")
    return FileResponse(path, headers={"Cache-Control": "max-age=3600", "X-Content-Type-Options": "nosniff"})


def routes(models: Callable[[], Awaitable[Iterable[Model]]], access: Access) -> list[Route]:
    """The routes of the description and of the page.

    Args:
        models: Those that are ready.
        access: Says whether the models ask for a token.
    """

    async def description(request: Request) -> Response:
        found = [each for each in await models() if may_call(request.scope, each.config.model_name)]
        document = describe(found, _root_path(request), asks_token=access.asks("inference"))
        return Response(orjson.dumps(document), media_type="application/json")

    return [Route("/openapi.json", description), Route("/docs", page), Route("/docs/{name}", file)]
