"""A web application in front of a model: one client for asyncio serves all its requests.

It calls the model that `quickstart.py` serves; start that first, or meanwhile: the application waits for the model. It
needs fastapi and uvicorn. Run it, or `uvicorn --app-dir examples --port 8080 --workers 4 fastapi_front:app`, then:

    curl -d '{"a": [1, 2, 3], "b": [10, 20, 30]}' -H 'content-type: application/json' localhost:8080/add
"""

import os
from contextlib import asynccontextmanager

import numpy as np
import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from pytriton.client import AsyncioModelClient
from pytriton.client.exceptions import (
    PyTritonClientConnectionError,
    PyTritonClientError,
    PyTritonClientServerUnavailableError,
    PyTritonClientTimeoutError,
)

url = f"localhost:{os.environ.get('PYTRITON_TRITON_CONFIG_HTTP_PORT', '8000')}"
STATUSES = {
    PyTritonClientTimeoutError: 504,
    PyTritonClientConnectionError: 503,
    PyTritonClientServerUnavailableError: 503,
}


class Terms(BaseModel):
    """What is to be added."""

    a: list[float]
    b: list[float]


@asynccontextmanager
async def lifespan(app: FastAPI):
    """Each process of the application has one client, from its start to its end."""
    async with AsyncioModelClient(url, "add", lazy_init=False, inference_timeout_s=5) as client:
        app.state.client = client
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/add")
async def add(terms: Terms, request: Request) -> dict[str, list[float]]:
    """Requests that arrive at the same time become one call of the model."""
    if len(terms.a) != len(terms.b):
        raise HTTPException(422, f"a has {len(terms.a)} numbers and b has {len(terms.b)}; send equally many")
    a, b = (np.array(numbers, dtype=np.float32) for numbers in (terms.a, terms.b))
    answer = await request.app.state.client.infer_sample(a, b)
    return {"sum": answer["sum"].tolist()}


@app.exception_handler(PyTritonClientError)
async def tell_of_failure(request: Request, error: PyTritonClientError) -> JSONResponse:
    """The callers of this application learn whether to try again."""
    status = next((status for kind, status in STATUSES.items() if isinstance(error, kind)), 502)
    return JSONResponse({"detail": str(error)}, status)


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8080")))
