"""The app within an application of FastAPI, beside its own routes and behind its own dependencies.

It needs the extra `rest` and fastapi. Run it, then:

    curl localhost:8080/models/predict/shout -H 'X-User: ada' -d '{"text": "hello"}'
    curl localhost:8080/greeting/ada
"""

import os
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from pytriton.client.exceptions import PyTritonClientError
from pytriton.inprocess import AsyncioModelClient, Triton
from pytriton.rest import create_app

triton = Triton()  # a server within this process: no port but that of the application


@triton.model
def shout(text: str) -> str:
    """The text in capitals."""
    return text.upper()


@asynccontextmanager
async def lifespan(app: FastAPI):
    with triton:
        async with AsyncioModelClient(triton.server, "shout") as client:
            app.state.shout = client
            yield


app = FastAPI(lifespan=lifespan)
app.mount("/models", create_app(triton))


@app.middleware("http")
async def check_user(request: Request, call_next):
    """What all routes need, also those of the models."""
    if "x-user" not in request.headers and request.url.path.startswith("/models/predict"):
        return JSONResponse({"detail": "say who you are: X-User"}, 401)
    return await call_next(request)


@app.get("/greeting/{name}")
async def greeting(name: str, request: Request) -> dict[str, str]:
    """A route of the application's own, which calls the model."""
    return {"greeting": await request.app.state.shout.call(text=f"hello {name}")}


@app.exception_handler(PyTritonClientError)
async def tell_of_failure(request: Request, error: PyTritonClientError) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 503)


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8080")))
