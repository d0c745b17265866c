"""Factories for workers of tests/server/test_remote_workers.py, which ``pytriton worker`` imports."""

import asyncio
import os
import time
from pathlib import Path

import numpy as np

from pytriton import batch
from pytriton.exceptions import PyTritonRequestError

FOLDER = Path(os.environ.get("REMOTE_TEST_FOLDER", "."))


def make_double():
    @batch
    def double(x):
        return {"y": x * 2}

    return double


def make_growing():
    """Keeps as many bytes as it is told."""
    kept = []

    @batch
    def growing(x):
        kept.append(np.ones(int(x[0, 0]), np.uint8))
        return {"y": x}

    return growing


def make_process():
    """Answers with the worker's process id."""

    @batch
    def process(x):
        return {"y": x * 0 + os.getpid()}

    return process


def make_gated():
    """Says who has entered, and answers when the file `open` exists."""

    @batch
    def gated(x):
        (FOLDER / f"entered-{os.getpid()}").touch()
        while not (FOLDER / "open").exists():
            time.sleep(0.01)
        return {"y": x * 2}

    return gated


def make_failing():
    def failing(requests):
        return [
            PyTritonRequestError("negative", code="INVALID_ARG") if request["x"].min() < 0 else {"y": request["x"] * 2}
            for request in requests
        ]

    return failing


def make_counting():
    """Streams 0, 1, 2, ... up to the input, and says in a file when it was closed before the end."""

    def counting(requests):
        (request,) = requests
        last = int(request["x"][0])
        try:
            for number in range(last):
                yield [{"y": np.array([number], np.float32)}]
        except GeneratorExit:
            (FOLDER / "closed").touch()
            raise

    return counting


def make_waiting():
    async def waiting(requests):
        await asyncio.sleep(0.05)
        return [{"y": request["x"] * 2} for request in requests]

    return waiting


def make_meeting():
    """Answers each request when as many are there as it says; the others may not be in the same batch."""
    present = []

    async def meeting(requests):
        present.extend(requests)
        while len(present) < requests[0]["x"][0]:
            await asyncio.sleep(0.01)
        return [{"y": request["x"] * 2} for request in requests]

    return meeting


def make_meeting_streams():
    """As ``make_meeting``, with generators."""
    present = []

    def meeting(requests):
        present.extend(requests)
        while len(present) < requests[0]["x"][0]:
            time.sleep(0.01)
            yield [{"y": requests[0]["x"] * 0}]
        yield [{"y": requests[0]["x"] * 2}]

    return meeting


def make_slow():
    """Takes its time, and longer while there is a file `hold`."""

    @batch
    def slow(x):
        time.sleep(0.3)
        while (FOLDER / "hold").exists():
            (FOLDER / "held").touch()
            time.sleep(0.01)
        return {"y": x * 2}

    return slow


def make_wide():
    """Streams so many arrays of 28 KB."""

    def wide(requests):
        (request,) = requests
        for number in range(int(request["x"][0])):
            yield [{"y": np.full(7000, number, np.float32)}]

    return wide


def make_typed():
    def repeat(text: str, times: int) -> str:
        return text * times

    return repeat


def make_texts():
    @batch
    def texts(x):
        return {"y": np.array([[text.decode().upper()] for text in x[:, 0]], object)}

    return texts


def make_writing():
    """Writes to its inputs."""

    @batch
    def writing(x):
        x *= 2
        return {"y": x}

    return writing


def make_places():
    """Answers with the worker's process id and the step of the sequence, which it counts itself."""
    steps = {}

    def places(requests):
        answers = []
        for request in requests:
            key = int(request["x"][0, 0])
            steps[key] = steps.get(key, 0) + 1
            answers.append({"y": np.array([[os.getpid(), steps[key]]], np.float64)})
        return answers

    return places


def make_leaving():
    """Doubles; its event loop gets an exit with 1, and is stopped with 2."""

    @batch
    async def leaving(x):
        async def leave():
            raise SystemExit(3)

        if x[0, 0] == 1:
            await asyncio.gather(leave())
        elif x[0, 0] == 2:
            asyncio.get_running_loop().stop()
        return {"y": x * 2}

    return leaving
