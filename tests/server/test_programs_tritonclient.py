"""Whole programs for tritonclient, written as people write them, run unchanged against models that are bound."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.grpc.auth
import tritonclient.http
import tritonclient.http.aio
import tritonclient.http.auth
import tritonclient.utils

from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, SequenceBatcher, Tensor
from pytriton.triton import Triton, TritonSecurityConfig
from tests.server.conftest import local_config
from tests.server.processes import DEADLINE_S
from tests.server.proxies import native_part_only
from tests.server.tensorrtserver_models import (
    ADD_SUB,
    SEQUENCE,
    TEXT_ADD_SUB,
    Accumulator,
    add_sub,
    text_add_sub,
)

pytestmark = [pytest.mark.either_proxy, pytest.mark.thorough]

PROGRAMS = Path(__file__).parents[1] / "programs" / "tritonclient"
REPEAT = (
    [Tensor((-1,), np.int32, "IN"), Tensor((-1,), np.uint32, "DELAY"), Tensor((1,), np.uint32, "WAIT")],
    [Tensor((1,), np.int32, "OUT"), Tensor((1,), np.uint32, "IDX")],
)
SCORES = Tensor((4,), np.float32, "scores", labels=["black", "dark", "bright", "white"])
UNBATCHED = ModelConfig(batching=False)

# What the programs ask for and how they are called, with {http} and {grpc} for the server's addresses.
RUNS = [
    ("simple_http_infer", "-u {http}"),
    (
        "simple_http_infer",
        "-v -u {http} -H test:1 --request-compression-algorithm gzip --response-compression-algorithm deflate",
    ),
    ("simple_grpc_infer", "-u {grpc}"),
    ("simple_grpc_infer", "-u {grpc} -v -t 20 -C deflate"),
    ("simple_http_async_infer", "-u {http}"),
    ("simple_grpc_async_infer", "-u {grpc}"),
    ("simple_grpc_sequence_stream", "-u {grpc} -o 7"),
    ("simple_sequence_sync", "-u {http}"),
    ("simple_sequence_sync", "-i gRPC -u {grpc}"),
    ("simple_shm", "-u {http}"),
    ("simple_shm", "-i grpc -u {grpc}"),
    ("simple_cudashm", "-u {grpc}"),
    ("simple_cudashm", "-i http -u {http}"),
    ("simple_string_infer", "-u {http} -g {grpc}"),
    ("simple_model_control", "-u {http}"),
    ("simple_model_control", "-i grpc -u {grpc}"),
    pytest.param("model_control_config", "-u {http}", marks=native_part_only),
    pytest.param("model_control_config", "-i grpc -u {grpc}", marks=native_part_only),
    ("health_metadata", "-u {http} -g {grpc}"),
    ("aio_infer", "-u {http} -g {grpc}"),
    ("aio_sequence_stream", "-u {grpc}"),
    ("simple_grpc_custom_repeat", "-u {grpc}"),
    ("keepalive_and_channel_args", "-u {grpc} --grpc-keepalive-time 10000 --grpc-keepalive-permit-without-calls"),
    ("raw_http", "-u {http}"),
    ("deprecated_aliases", "{http} {grpc}"),
    ("plugins_and_parameters", "-u {http} -g {grpc}"),
    ("error_handling", "-u {http} -g {grpc}"),
]
IMAGES = [
    "-m nchw -c 2 -u {http} 0 3",
    "-m nhwc -c 2 -a -u {http} 0 3",
    "-m nchw -c 2 -i gRPC -u {grpc} 0 3",
    "-m nhwc -c 2 -i gRPC -a -u {grpc} 0 3",
    "-m nchw -c 2 -i gRPC --streaming -u {grpc} 0 3",
    "-m unbatched -c 2 -u {http} 0 3",
]

OUTPUTS = {
    "simple_http_infer": r"7 \+ -1 = 6",
    "simple_grpc_infer": "7 - 1 = 6",
    "simple_http_async_infer": r"11 \[12 13 14\]",
    "simple_grpc_async_infer": "StatusCode.CANCELLED",
    "simple_grpc_sequence_stream": r"\[7\] 29 : 71",
    "simple_sequence_sync": r"\[\[11, 18, 23, 26, 28, 28, 29\], \[-11, -18",
    "simple_shm": r"15 \+ 1 = 16(.|\n)*already",
    "simple_string_infer": "PASS",
    "simple_model_control": "PASS: Model Control",
    "model_control_config": "8 -> 16",
    "aio_sequence_stream": r"5001: \[11, 18, 23, 26, 28, 28, 29\]",
    "simple_grpc_custom_repeat": "DEADLINE_EXCEEDED",
    "raw_http": "HELLO WORLD",
    "error_handling": "INTERNAL",
}


@batch
def brightness(image: Any) -> dict[str, Any]:
    """Scores of an image whose values are 0 (black) to 3 (white)."""
    value = image.reshape(len(image), -1).mean(axis=1, keepdims=True)
    return {"scores": 4 - abs(value - np.arange(4, dtype=np.float32))}


def repeat(requests: Any) -> Iterator[list[dict[str, Any]]]:
    (request,) = requests
    for index, (value, delay_ms) in enumerate(zip(request["IN"], request["DELAY"], strict=True)):
        time.sleep(int(delay_ms) / 1e3)
        yield [{"OUT": np.array([value]), "IDX": np.array([index], np.uint32)}]


def slow(requests: Any) -> list[dict[str, Any]]:
    """Works for as many seconds as the request says."""
    time.sleep(sum(float(request["INPUT"][0]) for request in requests))
    return [{"OUTPUT": request["INPUT"]} for request in requests]


def superstitious(requests: Any) -> list[dict[str, Any]]:
    if any(request["INPUT"][0] == 13 for request in requests):
        raise ValueError("13 is an unlucky number")
    return [{"OUTPUT": request["INPUT"]} for request in requests]


def seen(requests: Any) -> list[dict[str, Any]]:
    """What comes with a request: its parameters, and the headers that the server forwards."""
    return [{"SEEN": np.array([json.dumps(dict(request.parameters)).encode()])} for request in requests]


def shout(requests: Any) -> list[dict[str, Any]]:
    return [{"TEXT": np.array([request["PROMPT"][0].upper()], object)} for request in requests]


def echo(requests: Any) -> list[dict[str, Any]]:
    return [{"OUTPUT0": request["INPUT0"]} for request in requests]


@pytest.fixture(scope="module")
def addresses() -> Iterator[dict[str, str]]:
    """Of a server with the models that the programs call."""
    pattern = "x-.*|authorization"
    small = ModelConfig(max_batch_size=8)
    scalar = [Tensor((1,), np.float32, "INPUT")], [Tensor((1,), np.float32, "OUTPUT")]
    with (
        local_config(http_header_forward_pattern=pattern, grpc_header_forward_pattern=pattern) as config,
        Triton(config=config, security_config=TritonSecurityConfig(restricted_endpoints=[])) as triton,
    ):
        for name in ("simple", "controlled", "controlled_aio"):
            triton.bind(name, add_sub, *ADD_SUB, config=small)
        triton.bind("simple_string", text_add_sub, *TEXT_ADD_SUB, config=small)
        texts = [Tensor((-1,), bytes, "INPUT0")], [Tensor((-1,), bytes, "OUTPUT0")]
        triton.bind("simple_identity", echo, *texts, config=small)
        sequences = ModelConfig(max_batch_size=8, batcher=SequenceBatcher())
        triton.bind("simple_sequence", Accumulator(), *SEQUENCE, config=sequences)
        triton.bind("repeat_int32", [repeat] * 3, *REPEAT, config=ModelConfig(batching=False, decoupled=True))
        triton.bind("slow", [slow] * 3, *scalar, config=UNBATCHED)
        triton.bind("fails", superstitious, *scalar, config=UNBATCHED)
        triton.bind("params", seen, [Tensor((1,), np.float32, "X")], [Tensor((1,), bytes, "SEEN")], config=UNBATCHED)
        triton.bind(
            "generator", shout, [Tensor((1,), bytes, "PROMPT")], [Tensor((1,), bytes, "TEXT")], config=UNBATCHED
        )
        for name, shape in (("nchw", (3, 4, 2)), ("nhwc", (4, 2, 3))):
            image = Tensor(shape, np.float32, "image", format=name.upper())
            triton.bind(name, brightness, [image], [SCORES], config=small)
        image = Tensor((3, 4, 2), np.float32, "image", format="NCHW")
        triton.bind("unbatched", one_brightness, [image], [SCORES], config=UNBATCHED)
        yield {"http": f"127.0.0.1:{config.http_port}", "grpc": f"127.0.0.1:{config.grpc_port}"}


def one_brightness(requests: Any) -> list[dict[str, Any]]:
    return [{"scores": 4 - abs(request["image"].mean() - np.arange(4, dtype=np.float32))} for request in requests]


def run(program: str, arguments: str, addresses: dict[str, str]) -> str:
    """Run a program to its end, which must be a good one; returns what it printed."""
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / f"{program}.py"), *arguments.format(**addresses).split()],
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize(("program", "arguments"), RUNS)
def test_a_program_runs_unchanged_and_finds_what_it_expects(program, arguments, addresses):
    printed = run(program, arguments, addresses)
    assert printed.splitlines()[-1].startswith("PASS")
    assert re.search(OUTPUTS.get(program, ""), printed), printed


@pytest.mark.parametrize("arguments", IMAGES)
def test_an_image_client_reads_the_format_and_prints_labels(arguments, addresses):
    printed = run("image_client", arguments, addresses)
    first, second = (re.findall(r"\((\d)\) = (\w+)", part) for part in sorted(printed.split("Request ")[1:]))
    assert first == [("0", "black"), ("1", "dark")]
    assert second == [("3", "white"), ("2", "bright")]


def test_an_image_client_sends_batches(addresses):
    printed = run("image_client", "-m nhwc -b 3 -u {http} 0 1 3", addresses)
    assert "Request 1, batch size 3" in printed
    assert re.findall(r"\d\) = (\w+)", printed) == ["black", "dark", "white"]


def public_names() -> set[str]:
    """The methods and functions of tritonclient that programs call."""
    libraries = [tritonclient.http, tritonclient.grpc, tritonclient.http.aio, tritonclient.grpc.aio]
    classes = {
        getattr(library, name)
        for library in libraries
        for name in ("InferenceServerClient", "InferInput", "InferRequestedOutput", "InferResult", "InferAsyncRequest")
        if hasattr(library, name)
    }
    classes |= {tritonclient.utils.InferenceServerException, tritonclient.grpc.KeepAliveOptions}
    names = {kind.__name__ for kind in classes} | {"BasicAuth", "InferenceServerClientPlugin", "cancel"}
    names |= {name for kind in classes for name in dir(kind) if name[0] != "_" and not hasattr(Exception, name)}
    names |= {name for name, each in vars(tritonclient.utils).items() if inspect.isfunction(each) and name[0] != "_"}
    return names


def test_the_programs_use_all_that_tritonclient_offers():
    texts = "\n".join(path.read_text() for path in PROGRAMS.glob("*.py"))
    assert {name for name in public_names() if not re.search(rf"\b{name}\b", texts)} == set()


def test_every_program_is_run():
    run = {getattr(each, "values", each)[0] for each in RUNS}
    assert {path.stem for path in PROGRAMS.glob("*.py")} == run | {"image_client"}
