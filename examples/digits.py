"""Train a classifier of handwritten digits, serve it, and have several clients at once ask it about every test image.

Run it with `make demo`. It needs scikit-learn, which also brings the images, and takes ports that are free.
"""

import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

from pytriton.client import ModelClient
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

CLIENTS = 8
WANTED_ACCURACY = 0.95

images, digits = load_digits(return_X_y=True)
train_images, test_images, train_digits, test_digits = train_test_split(
    images.astype(np.float32), digits, test_size=0.5, random_state=0
)
classifier = SVC(gamma=0.001).fit(train_images, train_digits)


@batch
def classify(image):
    """Requests that wait at the same time arrive here together: `image` has shape (rows, 64)."""
    return {"digit": classifier.predict(image)[:, np.newaxis]}


def ask(url, images, digits):
    """One client: for each image whether the answer was right, and when it was asked for and came, in seconds."""
    log = []
    with ModelClient(url, "digits", lazy_init=False) as client:
        for image, digit in zip(images, digits, strict=True):
            asked_s = time.perf_counter()
            answer = client.infer_sample(image)["digit"][0]
            log.append((answer == digit, asked_s, time.perf_counter()))
    return log


def measure(url):
    """All clients at once, each with its share of the test images; prints a row of the table, returns the accuracy."""
    with ThreadPoolExecutor(CLIENTS) as pool:
        shares = [pool.submit(ask, url, test_images[i::CLIENTS], test_digits[i::CLIENTS]) for i in range(CLIENTS)]
    right, asked_s, answered_s = np.concatenate([share.result() for share in shares]).T
    accuracy, rate = right.mean(), len(right) / (answered_s.max() - asked_s.min())
    p50_ms, p99_ms = np.percentile((answered_s - asked_s) * 1e3, [50, 99])
    print(f"{url:24} {accuracy:8.3f} {rate:11.0f} {p50_ms:9.2f} {p99_ms:9.2f}")
    return accuracy


def free_ports(count):
    """Ports on which nobody listens."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


http_port, grpc_port = free_ports(2)
config = TritonConfig(
    http_address="127.0.0.1",
    http_port=http_port,
    grpc_address="127.0.0.1",
    grpc_port=grpc_port,
    allow_metrics=False,
)
with Triton(config=config) as triton:
    triton.bind(
        "digits",
        classify,
        inputs=[Tensor(name="image", shape=(64,), dtype=np.float32)],
        outputs=[Tensor(name="digit", shape=(1,), dtype=np.int64)],
        config=ModelConfig(max_batch_size=64),
    )
    print(f"Trained on {len(train_images)} images; {CLIENTS} clients ask about {len(test_images)} others one by one.\n")
    print(f"{'server':24} {'accuracy':>8} {'requests/s':>11} {'p50 ms':>9} {'p99 ms':>9}")
    accuracies = [measure(f"http://127.0.0.1:{http_port}"), measure(f"grpc://127.0.0.1:{grpc_port}")]

if min(accuracies) < WANTED_ACCURACY:
    sys.exit(f"\nThe accuracy is below {WANTED_ACCURACY}.")
print("\nThe server has stopped.")
