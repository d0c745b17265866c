"""A hosting process of the section ``openai``: a chat and embeddings, with OpenAI's API.

Usage: ``python chats.py (own | fastapi) <HTTP port> <two other ports> <model>...``; SIGTERM ends it. ``own`` is the
front in a process of its own, ``fastapi`` the same functions behind FastAPI's StreamingResponse, in two processes.
The models of the names are those of others.py, for the first answer.
"""

import asyncio
import json
import os
import signal
import sys
import threading

import numpy as np
from others import QUIET
from others import fastapi as predictions
from served import HOST, bind, config_of, make

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
        self._busy = make("busy").__wrapped__
        self._turn = threading.Lock()

    def __call__(self, texts):
        """Embed texts."""
        with self._turn:
            self._busy(np.ones(1, np.float32))
        return np.full((len(texts), SIZE), 1 / SIZE, np.float32)


def own(port, others, models):
    """Serve the front in a process of its own."""
    from pytriton.llm import ChatModel, EmbeddingModel
    from pytriton.model_config import DynamicBatcher, ModelConfig
    from pytriton.rest import RestConfig
    from pytriton.triton import Triton

    config = config_of(others[0], others[1], None)
    config.allow_metrics = False
    with Triton(config=config, rest=RestConfig(address=HOST, port=port)) as triton:
        for name in models:
            bind(triton, name, make(name))
        triton.bind("chat", ChatModel(chat))
        batches = ModelConfig(max_batch_size=BATCH, batcher=DynamicBatcher())
        triton.bind("embed", EmbeddingModel(Embedder()), config=batches)
        triton.serve()


def application():
    """The same functions as routes of FastAPI."""
    from fastapi.responses import StreamingResponse

    app, embed = predictions(), Embedder()

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


def main():
    """Serve until a signal."""
    kind, port, *others = sys.argv[1], *map(int, sys.argv[2:5])
    models = sys.argv[5:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # uvicorn sends itself the signal again at its end
    if kind == "own":
        own(port, others, models)
    else:
        import uvicorn

        os.environ["MODELS"] = " ".join(models)
        uvicorn.run("chats:application", factory=True, workers=2, port=port, **QUIET)


if __name__ == "__main__":
    sys.exit(main())
