"""A hosting process of the section ``openai``: a chat and embeddings, with OpenAI's API.

Usage: ``python chats.py (own | fastapi | litserve) <HTTP port> <two other ports> <model>...``; SIGTERM ends it. ``own``
is the app in a process of its own, ``fastapi`` the same functions behind FastAPI's StreamingResponse, and
``litserve`` the chat alone with LitServe's OpenAISpec, both in two processes. The models of the
names are those of others.py, for the first answer. The interpreter needs the framework and NumPy, ``own`` pytriton.
"""

import asyncio
import json
import os
import signal
import sys
import threading

import numpy as np
import others
from models import compute

SIZE = 384  # of embeddings
BATCH = 64


async def tokens(count, pause_s):
    """The same for all: numbers, with a pause after each."""
    for number in range(count):
        yield f"{number} "
        await asyncio.sleep(pause_s)


def plan(message):
    """The numbers in a message: of tokens, and of seconds."""
    count, pause_s = message["content"].split()
    return int(count), float(pause_s)


async def chat(request):
    """Answer with tokens."""
    async for token in tokens(*plan(request.messages[-1])):
        yield token


class Embedder:
    """Computes for 5 ms, however many the texts are, and serves one batch at a time."""

    def __init__(self):
        self._turn = threading.Lock()

    def __call__(self, texts):
        """Embed texts."""
        with self._turn:
            compute()
        return np.full((len(texts), SIZE), 1 / SIZE, np.float32)


def own(port, ports, models):
    """Serve the app in a process of its own."""
    from served import bind, config_of, make

    from pytriton.llm import ChatModel, EmbeddingModel
    from pytriton.model_config import DynamicBatcher, ModelConfig
    from pytriton.rest import RestConfig
    from pytriton.triton import Triton

    config = config_of(*ports, None)
    config.allow_metrics = False
    with Triton(config=config, rest=RestConfig(address=others.HOST, port=port)) as triton:
        for name in models:
            bind(triton, name, make(name))
        triton.bind("chat", ChatModel(chat))
        batches = ModelConfig(max_batch_size=BATCH, batcher=DynamicBatcher())
        triton.bind("embed", EmbeddingModel(Embedder()), config=batches)
        triton.serve()


def application():
    """The same functions as routes of FastAPI."""
    from fastapi.responses import StreamingResponse

    app, embed = others.fastapi(), Embedder()

    async def chat_route(body: dict):
        async def events():
            head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "chat"}
            async for token in tokens(*plan(body["messages"][-1])):
                choice = {"index": 0, "delta": {"content": token}, "logprobs": None, "finish_reason": None}
                yield f"data: {json.dumps({**head, 'choices': [choice]})}\n\n"
            yield "data: [DONE]\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    def embed_route(body: dict):
        (vector,) = embed([body["input"]])
        data = [{"object": "embedding", "index": 0, "embedding": vector.tolist()}]
        return {"object": "list", "model": "embed", "data": data}

    app.post("/v1/chat/completions")(chat_route)
    app.post("/v1/embeddings")(embed_route)
    return app


def lit_api():
    """The class of the chat that LitServe serves."""
    import litserve

    class Chat(litserve.LitAPI):
        def setup(self, device):
            pass

        async def predict(self, request):
            async for token in tokens(*plan(vars(request.messages[-1]))):
                yield token

    Chat.__qualname__ = "Chat"  # by which worker processes find it
    return Chat


def serve_litserve(port, models):
    """Serve with LitServe."""
    import litserve
    from chats import Chat

    os.environ["MODELS"] = " ".join(models)
    apis = [others.Model(api_path=f"/predict/{model}") for model in models]
    apis.append(Chat(enable_async=True, spec=litserve.OpenAISpec()))
    server = litserve.LitServer(apis, workers_per_device=others.WORKERS)
    server.run(host=others.HOST, port=port, generate_client_file=False, log_level="warning")


def __getattr__(name):  # it needs LitServe
    if name != "Chat":
        raise AttributeError(name)
    globals()[name] = lit_api()
    return globals()[name]


def main():
    """Serve until a signal."""
    kind, port, *ports = sys.argv[1], *map(int, sys.argv[2:5])
    models = sys.argv[5:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # uvicorn sends itself the signal again at its end
    if kind == "own":
        own(port, ports, models)
    elif kind == "litserve":
        serve_litserve(port, models)
    else:
        import uvicorn

        os.environ["MODELS"] = " ".join(models)
        uvicorn.run("chats:application", factory=True, workers=others.WORKERS, port=port, **others.QUIET)


if __name__ == "__main__":
    sys.exit(main())
