"""A chat with a small model of characters, which is trained when it starts, behind OpenAI's API.

It needs the extras `llm` and `rest`, and `pip install openai`. While it serves, other programs can call it:

    curl -N localhost:8080/v1/chat/completions \
        -d '{"model": "talk", "stream": true, "messages": [{"role": "user", "content": "Will it rain?"}]}'
    ChatOpenAI(model="talk", base_url="http://localhost:8080/v1", api_key="any")    # of langchain_openai
"""

import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import openai

from pytriton import Triton
from pytriton.llm import ChatModel, ChatRequest, Finish
from pytriton.rest import RestConfig

PORT = int(os.environ.get("PORT", "8080"))
TEXT = (Path(__file__).parent / "texts" / "weather_talk.txt").read_text()
TEMPLATE = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}bot:"


class Characters:
    """Predicts the next character from up to 24 characters before it, by counting."""

    def __init__(self, text: str, longest: int = 24) -> None:
        self.alphabet = sorted(set(text))
        self.longest = longest
        self.counts = defaultdict(lambda: np.zeros(len(self.alphabet)))
        numbers = {character: number for number, character in enumerate(self.alphabet)}
        for place, character in enumerate(text):
            for length in range(min(longest, place) + 1):
                self.counts[text[place - length : place]][numbers[character]] += 1

    def probabilities(self, text: str) -> np.ndarray:
        """Of each character of the alphabet: longer contexts count far more than shorter ones."""
        total = np.full(len(self.alphabet), 1e-9)
        for length in range(min(self.longest, len(text)) + 1):
            context = text[len(text) - length :]
            if context in self.counts:
                total += 20.0**length * self.counts[context] / self.counts[context].sum()
        return total / total.sum()


model = Characters(TEXT)


def talk(request: ChatRequest) -> Iterator[str | Finish]:
    """Answer with a line of text, one character at a time."""
    random = np.random.default_rng(request.sampling.get("seed"))
    temperature = 0.5 if request.temperature is None else max(request.temperature, 0.01)
    text = request.prompt
    for _ in range(request.max_tokens or 200):
        weights = model.probabilities(text) ** (1 / temperature)
        character = model.alphabet[random.choice(len(weights), p=weights / weights.sum())]
        if character == "\n":
            return
        if not text.endswith("bot:"):  # the space after it is no part of the answer
            yield character
        text += character
    yield Finish("length")


def main() -> None:
    with Triton(rest=RestConfig(port=PORT)) as triton:
        triton.bind(ChatModel(talk, template=TEMPLATE, tokenizer=list))
        with openai.OpenAI(base_url=f"http://localhost:{PORT}/v1", api_key="any") as client:
            question = {"role": "user", "content": "Will it rain tomorrow?"}
            answer = client.chat.completions.create(model="talk", messages=[question], temperature=0, stream=True)
            print("streamed:", "".join(event.choices[0].delta.content or "" for event in answer))
            several = client.chat.completions.create(model="talk", messages=[question], n=2, seed=1, stop=[",", "."])
            for choice in several.choices:
                print(f"choice {choice.index}: {choice.message.content}")
            print("tokens:", several.usage.total_tokens)
        if "--serve" in sys.argv:
            triton.serve()


if __name__ == "__main__":
    main()
