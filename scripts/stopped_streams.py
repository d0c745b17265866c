"""Streams of responses that clients stop, beside requests that are refused: the server lives and keeps nothing.

``python scripts/stopped_streams.py --streams 100000`` starts a server, and stops so many streams over gRPC, after the
first, a late or the last response, by tritonclient and by grpc.aio in turns, 16 and 64 at a time. What makes the exit
status 1: another process of the server at the end, a stream that is silent for 5 s, a wrong response, and memory that
grows by more than 5 MiB after the first tenth.
"""

from __future__ import annotations

import argparse
import asyncio
import queue
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import numpy as np
from hosts import Host, find_system
from payloads import HOST, MODEL, STREAM
from processes import adopt_orphans, names, resident_bytes
from tritonclient.grpc import InferenceServerClient, InferInput, service_pb2
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub
from tritonclient.utils import InferenceServerException

__all__ = ["CLIENTS", "RESPONSES", "Plan", "stop_streams"]

RESPONSES = 20  # to each request
GOALS = (1, RESPONSES - 3, RESPONSES)  # responses after which a stream is stopped
SILENT_S = 5.0
CHANNELS = 4
AT_ONCE = (16, 64)
MOST_GROWTH_BYTES = 5 << 20
VALUES = np.arange(16, dtype=np.float32)[np.newaxis]
REFUSED = {  # name of the model, of its input, dtype
    "an unknown model": ("unknown", "INPUT", "FP32"),
    "an unknown input": (STREAM, "OTHER", "FP32"),
    "another dtype": (STREAM, "INPUT", "INT32"),
}


class Plan(NamedTuple):
    """What a stream does: which requests it sends, how many responses it reads, and whether it says that it is done."""

    requests: list[str]  # STREAM, or one of REFUSED
    goal: int
    half_closes: bool

    @classmethod
    def of(cls, dice: random.Random) -> Plan:
        """One at random, which the server cannot tell from its beginning."""
        requests = [STREAM]
        for _ in range(dice.choice((0, 1, 2))):
            requests.insert(dice.randrange(len(requests) + 1), dice.choice([*REFUSED]))
        return cls(requests, dice.choice(GOALS), dice.random() < 0.5)


def tensors(request: str) -> tuple[str, list[InferInput]]:
    """The model and the inputs of a request."""
    model, name, dtype = REFUSED.get(request, (STREAM, "INPUT", "FP32"))
    values, count = InferInput(name, VALUES.shape, dtype), InferInput("COUNT", [1, 1], "INT32")
    values.set_data_from_numpy(VALUES.astype(np.int32) if dtype == "INT32" else VALUES)
    count.set_data_from_numpy(np.array([[RESPONSES]], np.int32))
    return model, [values, count]


def message(request: str) -> Any:
    """The request as the message that tritonclient sends."""
    model, inputs = tensors(request)
    made = service_pb2.ModelInferRequest(model_name=model, id=request)
    for each in inputs:
        made.inputs.append(each._get_tensor())
        made.raw_input_contents.append(each._get_content())
    return made


def stop_with_tritonclient(url: str, plans: queue.SimpleQueue[Plan], counts: Counter[str]) -> None:
    """One stream after the other with one client."""
    with InferenceServerClient(url) as client:
        while not plans.empty():
            try:
                plan = plans.get_nowait()
            except queue.Empty:
                return
            answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
            client.start_stream(lambda result, error, to=answers: to.put(error or result))
            for request in plan.requests:
                model, inputs = tensors(request)
                client.async_stream_infer(model, inputs, request_id=request)
            right, refused = 0, 0
            try:
                while right < plan.goal:
                    answer = answers.get(timeout=SILENT_S)
                    if isinstance(answer, InferenceServerException):
                        refused += 1
                        counts["refused"] += 1
                        if refused > len(plan.requests) - 1:
                            counts[f"wrong: {answer}"] += 1
                            break
                    elif np.array_equal(answer.as_numpy("OUTPUT"), 2 * VALUES):
                        right += 1
                    else:
                        counts["wrong"] += 1
            except queue.Empty:
                counts["silent"] += 1
            counts["responses"] += right
            client.stop_stream(cancel_requests=not plan.half_closes)
            counts["streams"] += 1


def stop_in_threads(port: int, plans: Sequence[Plan], at_once: int) -> Counter[str]:
    """Stop streams by tritonclient, each in a thread."""
    waiting: queue.SimpleQueue[Plan] = queue.SimpleQueue()
    for plan in plans:
        waiting.put(plan)
    counts = [Counter[str]() for _ in range(at_once)]
    stop = partial(stop_with_tritonclient, f"{HOST}:{port}", waiting)
    threads = [threading.Thread(target=stop, args=(each,)) for each in counts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts, Counter())


async def stop_with_aio(stub: Any, plan: Plan, requests: dict[str, Any], counts: Counter[str]) -> None:
    """One stream."""
    stopped = asyncio.Event()

    async def send() -> AsyncIterator[Any]:
        for request in plan.requests:
            yield requests[request]
        if not plan.half_closes:
            await stopped.wait()

    call, right, refused = stub.ModelStreamInfer(send()), 0, 0
    try:
        while right < plan.goal:
            answer = await asyncio.wait_for(call.read(), SILENT_S)
            if answer is grpc.aio.EOF:
                counts[f"wrong: ended after {right}"] += 1
                break
            if answer.error_message:
                refused += 1
                counts["refused"] += 1
                if refused > len(plan.requests) - 1:
                    counts[f"wrong: {answer.error_message}"] += 1
                    break
            elif answer.infer_response.raw_output_contents == [(2 * VALUES).tobytes()]:
                right += 1
            else:
                counts["wrong"] += 1
    except asyncio.TimeoutError:
        counts["silent"] += 1
    except grpc.RpcError as error:
        counts[f"wrong: {error.code()}: {error.details()}"] += 1
    counts["responses"] += right
    call.cancel()
    stopped.set()
    counts["streams"] += 1


def stop_on_a_loop(port: int, plans: Sequence[Plan], at_once: int) -> Counter[str]:
    """Stop streams by grpc.aio."""
    counts, waiting = Counter[str](), iter(plans)
    requests = {name: message(name) for name in (STREAM, *REFUSED)}

    async def run() -> None:
        async with AsyncExitStack() as stack:
            options = [("grpc.use_local_subchannel_pool", 1)]
            stubs = [
                GRPCInferenceServiceStub(
                    await stack.enter_async_context(grpc.aio.insecure_channel(f"{HOST}:{port}", options))
                )
                for _ in range(CHANNELS)
            ]

            async def work(number: int) -> None:
                for plan in waiting:
                    await stop_with_aio(stubs[number % CHANNELS], plan, requests, counts)

            await asyncio.gather(*map(work, range(at_once)))

    asyncio.run(run())
    return counts


CLIENTS = {"tritonclient": stop_in_threads, "aio": stop_on_a_loop}


def stop_streams(client: str, port: int, streams: int, at_once: int, seed: int) -> Counter[str]:
    """Stop so many streams by one of CLIENTS; returns what they came to, where ``silent`` and ``wrong`` are faults.

    In a process of its own, as tritonclient leaves a thread behind for each stream that it cancels.
    """
    dice = random.Random(seed)
    plans = [Plan.of(dice) for _ in range(streams)]
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(CLIENTS[client], port, plans, at_once).result()


def server_in(host: Host) -> int:
    return next(pid for pid, name in names(host.family()).items() if name.partition(" #")[0] == "tritonserver")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=100_000, help="in all (100000)")
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=[*CLIENTS], help="who stops them (both)")
    parser.add_argument("--turns", type=int, default=10, help="of each client with each number at a time (10)")
    parser.add_argument("--seed", type=int, default=0, help="of the random choices (0)")
    chosen = parser.parse_args(arguments)
    adopt_orphans()
    turns = [(client, at_once) for client in chosen.clients for at_once in AT_ONCE] * chosen.turns
    counts, problems, resident = Counter[str](), list[str](), list[int]()
    with (
        tempfile.TemporaryDirectory(prefix="streams-") as folder,
        Host(find_system("ours"), Path(folder), (STREAM, MODEL)) as host,
    ):
        host.wait_first_answer()
        pid, began = server_in(host), time.monotonic()
        for number, (client, at_once) in enumerate(turns):
            counts += stop_streams(
                client, host.ports["grpc"], chosen.streams // len(turns), at_once, chosen.seed + number
            )
            if server_in(host) != pid:
                problems.append(f"the server ended in turn {number} ({client}, {at_once})")
                break
            resident.append(resident_bytes(pid))
            held = f"{resident[-1] / 2**20:.1f} MiB"
            print(f"{time.monotonic() - began:6.0f} s  {client} {at_once}  {held}  {dict(counts)}", file=sys.stderr)
        if resident:
            settled = resident[len(resident) // 10]
            if resident[-1] > settled + MOST_GROWTH_BYTES:
                problems.append(f"memory: {settled / 2**20:.1f} MiB, then {resident[-1] / 2**20:.1f}")
    problems += [f"{count} times {what}" for what, count in counts.items() if what.startswith(("silent", "wrong"))]
    print(f"{dict(counts)}, {[round(each / 2**20, 1) for each in resident]} MiB")
    for problem in problems:
        print(f"PROBLEM: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
