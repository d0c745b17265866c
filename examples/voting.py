"""Three classifiers of handwritten digits vote: a callable calls three models at once.

It needs scikit-learn. Each classifier is a model of its own, with its own queue, and may be called alone.
"""

import os

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from pytriton import ModelClient, ModelConfig, ModelHandle, Tensor, Triton, batch

URL = f"http://localhost:{os.environ.get('PYTRITON_TRITON_CONFIG_HTTP_PORT', '8000')}"
IMAGES = [Tensor(name="image", shape=(64,), dtype=np.float32)]
DIGITS = [Tensor(name="digit", shape=(1,), dtype=np.int64)]
CONFIG = ModelConfig(max_batch_size=1000)

images, digits = load_digits(return_X_y=True)
images = images.astype(np.float32)
train, test = slice(None, 900), slice(900, None)
CLASSIFIERS = {
    "neighbors": KNeighborsClassifier(),
    "regression": LogisticRegression(max_iter=1000),
    "forest": RandomForestClassifier(random_state=0),
}


def serving(classifier):
    """The callable of a classifier."""

    @batch
    def classify(image):
        return {"digit": classifier.predict(image)[:, np.newaxis]}

    return classify


@batch
def vote(image, neighbors: ModelHandle, regression: ModelHandle, forest: ModelHandle):
    """The digit that most classifiers see, for each image."""
    answers = [model.submit(image) for model in (neighbors, regression, forest)]
    votes = np.hstack([answer.result()["digit"] for answer in answers])
    return {"digit": np.array([[np.bincount(row, minlength=10).argmax()] for row in votes])}


def main():
    with Triton() as triton:
        for name, classifier in CLASSIFIERS.items():
            classifier.fit(images[train], digits[train])
            triton.bind(name, serving(classifier), IMAGES, DIGITS, config=CONFIG)
        triton.bind("vote", vote, IMAGES, DIGITS, config=CONFIG)
        for name in (*CLASSIFIERS, "vote"):
            with ModelClient(URL, name) as client:
                seen = client.infer_batch(images[test])["digit"][:, 0]
            print(f"{name}: {np.mean(seen == digits[test]):.2f} of {len(seen)} right")


if __name__ == "__main__":
    main()
