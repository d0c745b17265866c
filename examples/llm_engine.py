"""An engine that works on many streams at the same time, behind one async function.

Each step computes the next token of every stream that runs, with one product of matrices, as engines with continuous
batching do: a request joins at the next step, and leaves when its answer ends or its client has gone. No request has a
thread. It needs the extras `llm` and `rest`, and `pip install openai`.
"""

import asyncio
import os
from collections.abc import AsyncIterator

import numpy as np
import openai

from pytriton import ModelConfig, Triton
from pytriton.llm import ChatModel, ChatRequest, Finish, Usage
from pytriton.rest import RestConfig

PORT = int(os.environ.get("PORT", "8080"))
STREAMS, SIZE = 32, 256
WORDS = ["the", "a", "sea", "wind", "sun", "rain", "harbour", "boat", "over", "under", "sails", "shines", "falls"]


class Engine:
    """Has a row of a matrix for each stream: its state."""

    def __init__(self, slots: int) -> None:
        random = np.random.default_rng(1)
        self.weights = random.normal(size=(SIZE, SIZE)) / np.sqrt(SIZE)
        self.embeddings = random.normal(size=(SIZE, len(WORDS)))
        self.states = np.zeros((slots, SIZE))
        self.free = list(range(slots))
        self.queues: dict[int, asyncio.Queue[str]] = {}
        self.slot_free = asyncio.Condition()
        self.stepping: asyncio.Task[None] | None = None
        self.steps = self.most = 0

    async def generate(self, seed: int, count: int) -> AsyncIterator[str]:
        """The tokens of one stream."""
        async with self.slot_free:
            await self.slot_free.wait_for(lambda: self.free)
            slot = self.free.pop()
        self.states[slot] = np.random.default_rng(seed).normal(size=SIZE)
        queue = self.queues[slot] = asyncio.Queue()
        if self.stepping is None or self.stepping.done():
            self.stepping = asyncio.create_task(self.step())
        try:
            for _ in range(count):
                yield await queue.get()
        finally:  # also if the client has gone
            del self.queues[slot]
            self.free.append(slot)
            async with self.slot_free:
                self.slot_free.notify()

    async def step(self) -> None:
        """Steps for all streams together, while there are any."""
        while self.queues:
            slots = list(self.queues)
            self.steps, self.most = self.steps + 1, max(self.most, len(slots))
            states = np.tanh(self.states[slots] @ self.weights + 0.1)
            self.states[slots] = states
            for slot, token in zip(slots, (states @ self.embeddings).argmax(axis=1), strict=True):
                self.queues[slot].put_nowait(WORDS[token])
            await asyncio.sleep(0.002)  # new requests join, and tokens are sent


engine: Engine | None = None


async def write(request: ChatRequest) -> AsyncIterator[str | Usage | Finish]:
    """Write some words."""
    global engine
    engine = engine or Engine(slots=STREAMS)  # on the event loop of the model
    count = request.max_tokens or 20
    async for word in engine.generate(len(request.messages[-1]["content"]), count):
        yield f"{word} "
    yield Usage(prompt_tokens=len(request.messages), completion_tokens=count)
    yield Finish("length")


async def ask() -> None:
    """Ask twice as many questions at once as the engine has room for."""
    async with openai.AsyncOpenAI(base_url=f"http://localhost:{PORT}/v1", api_key="any") as client:

        async def words(number: int) -> int:
            question = {"role": "user", "content": "x" * number}
            stream = await client.chat.completions.create(
                model="write", messages=[question], max_tokens=50, stream=True
            )
            return len("".join([event.choices[0].delta.content or "" async for event in stream]).split())

        counts = await asyncio.gather(*(words(number) for number in range(2 * STREAMS)))
    print(f"{len(counts)} streams with {sum(counts)} words")


def main() -> None:
    with Triton(rest=RestConfig(port=PORT)) as triton:
        triton.bind(ChatModel(write), config=ModelConfig(max_batches_in_flight=2 * STREAMS))
        asyncio.run(ask())
        print(f"{engine.steps} steps, with up to {engine.most} streams each")


if __name__ == "__main__":
    main()
