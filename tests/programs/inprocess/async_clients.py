import argparse
import asyncio
import time

import numpy
from pytriton import inprocess as tritonserver


async def ask(model, i):
    async for response in model.async_infer(inputs={"NUMBERS": numpy.full(3, i, dtype=float)}, request_id=str(i)):
        assert response.request_id == str(i)
        return float(numpy.from_dlpack(response.outputs["SUM"])[0])


async def stream(model, n):
    iterator = model.async_infer(inputs={"IN": numpy.array([n], numpy.int32)})
    assert isinstance(iterator, tritonserver.AsyncResponseIterator)
    seen = []
    async for r in iterator:
        if r.outputs:
            seen.append(int(numpy.from_dlpack(r.outputs["OUT"])[0]))
        last = r
    return seen, last.final


async def with_queue(model):
    q = asyncio.Queue()
    request = model.create_request(inputs={"IN": numpy.array([3], numpy.int32)}, response_queue=q)
    model.async_infer(request)
    n = 0
    while True:
        r = await asyncio.wait_for(q.get(), 30)
        n += 1
        if r.final:
            return n


async def cancelled(model):
    responses = model.async_infer(inputs={"IN": numpy.array([1000000], numpy.int32)}, raise_on_error=True)
    try:
        async for r in responses:
            if r.outputs:
                responses.cancel()
    except tritonserver.CancelledError as e:
        assert e.args[-1].final
        return "cancelled"
    return "not cancelled"


async def failing(model):
    errors = 0
    async for r in model.async_infer(inputs={"IN": [3], "FAIL_AT": numpy.array([1], numpy.int32)}, raise_on_error=False):
        errors += r.error is not None
    return errors


async def main(repository):
    server = tritonserver.Server(model_repository=repository, model_control_mode=tritonserver.ModelControlMode.EXPLICIT, startup_models=["params", "counter"])
    server.start(wait_until_ready=True)
    params, counter = server.model("params"), server.model("counter")
    t = time.time()
    print("sums", await asyncio.gather(*[ask(params, i) for i in range(8)]))
    print("took a while", time.time() - t > 60)
    print("streams", await asyncio.gather(stream(counter, 0), stream(counter, 1), stream(counter, 5)))
    print("queue", await with_queue(counter))
    print(await cancelled(counter))
    try:
        print("errors", await failing(counter))
    except tritonserver.InvalidArgumentError as e:  # IN is no int32
        print("list:", str(e)[:60])
    server.stop()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("-m", default="models")
    asyncio.run(main(p.parse_args().m))
