"""Stream text word by word: a decoupled model, its two clients, and plain HTTP.

The model learns from a few sentences which words follow which, and goes on from a prompt. It is a generator function:
each value that it yields is sent at once. At the end the script serves on, for the printed `curl` command, until
Ctrl+C.
"""

import asyncio
import logging
import os
import random
import time
from collections import defaultdict
from contextlib import aclosing
from itertools import pairwise

import numpy as np

from pytriton.client import AsyncioDecoupledModelClient, DecoupledModelClient
from pytriton.decorators import sample
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton

logging.basicConfig(level=logging.INFO)  # shows when streams end

http_port = os.environ.get("PYTRITON_TRITON_CONFIG_HTTP_PORT", "8000")
grpc_url = f"grpc://localhost:{os.environ.get('PYTRITON_TRITON_CONFIG_GRPC_PORT', '8001')}"

TEXT = """
The cat sat on the wall and watched the rain. The dog sat by the door and watched the cat. The rain fell on the wall
and on the door and on the dog. The cat went in by the door and sat by the fire, and the dog watched the fire and the
rain. In the night the fire went out and the rain went on.
"""

followers = defaultdict(list)
for word, follower in pairwise(TEXT.split()):
    followers[word].append(follower)


@sample
def tell(prompt):
    """Yields one word after the other, up to the end of a sentence. Its arguments are those of one request."""
    text = prompt[0].decode()
    choices = random.Random(text)
    word = text.split()[-1]
    words = 0
    try:
        while word in followers and not word.endswith("."):
            time.sleep(0.03)  # stands for a neural network
            word = choices.choice(followers[word])
            words += 1
            yield {"word": np.array([word.encode()])}
    finally:
        # Also if the client has gone, or wants no more: then `yield` raises GeneratorExit.
        logging.info("%r ended after %d words", text, words)


def listen():
    """The synchronous client: an iterator of responses."""
    with DecoupledModelClient(grpc_url, "teller") as client:
        print("The", *(response["word"][0].decode() for response in client.infer_sample(np.array([b"The"]))))

        with client.infer_sample(np.array([b"In"])) as responses:
            print("In", next(responses)["word"][0].decode(), "... is enough")  # leaving the block cancels the rest


async def listen_to(client, prompt):
    words = []
    async with aclosing(client.infer_sample(np.array([prompt.encode()]))) as responses:
        async for response in responses:
            words.append(response["word"][0].decode())
    return " ".join([prompt, *words])


async def listen_to_many(prompts):
    """The client for asyncio: any number of streams at once."""
    async with AsyncioDecoupledModelClient(grpc_url, "teller") as client:
        print(*await asyncio.gather(*(listen_to(client, prompt) for prompt in prompts)), sep="\n")


with Triton() as triton:
    triton.bind(
        "teller",
        tell,
        inputs=[Tensor(name="prompt", shape=(1,), dtype=bytes)],
        outputs=[Tensor(name="word", shape=(1,), dtype=bytes)],
        config=ModelConfig(batching=False, decoupled=True),
    )
    listen()
    asyncio.run(listen_to_many(["The cat", "In the", "and on the dog"]))
    print(
        f"""curl -N -d '{{"prompt": "The dog"}}' localhost:{http_port}/v2/models/teller/generate_stream""", flush=True
    )
    triton.serve()
