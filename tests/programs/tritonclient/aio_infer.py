import argparse
import asyncio
import sys

import numpy as np
import tritonclient.grpc.aio as grpcclient
import tritonclient.http.aio as httpclient
from tritonclient.utils import InferenceServerException

parser = argparse.ArgumentParser()
parser.add_argument('-u', '--url')
parser.add_argument('-g', '--grpc-url')
FLAGS = parser.parse_args()


def request(lib, k):
    inputs = [lib.InferInput("INPUT0", [1, 16], "INT32"), lib.InferInput("INPUT1", [1, 16], "INT32")]
    inputs[0].set_data_from_numpy(np.full([1, 16], k, np.int32))
    inputs[1].set_data_from_numpy(np.ones([1, 16], np.int32))
    return inputs


async def one(lib, client, k):
    r = await client.infer("simple", request(lib, k), outputs=[lib.InferRequestedOutput("OUTPUT0")], request_id=str(k))
    return int(r.as_numpy("OUTPUT0")[0, 0])


async def everything(lib, client):
    assert await client.is_server_live() and await client.is_server_ready() and await client.is_model_ready("simple")
    meta = await client.get_server_metadata()
    await client.get_model_metadata("simple")
    await client.get_model_config("simple")
    await client.get_model_repository_index()
    await client.get_inference_statistics("simple")
    await client.get_log_settings()
    await client.update_log_settings({"log_verbose_level": 0})
    await client.get_trace_settings()
    await client.update_trace_settings(settings={"trace_count": "-1"})
    await client.get_system_shared_memory_status()
    await client.get_cuda_shared_memory_status()
    await client.unregister_system_shared_memory("never-heard-of")
    await client.unregister_cuda_shared_memory()
    await client.unload_model("controlled_aio")
    await client.load_model("controlled_aio")
    try:
        await client.register_system_shared_memory("r", "/no-such-key-at-all", 8)
        sys.exit(1)
    except InferenceServerException as e:
        print(e)
    try:
        await client.register_cuda_shared_memory("r", b"AAAA", 0, 8)
        sys.exit(1)
    except InferenceServerException as e:
        print(e)
    return meta


async def main():
    for lib, url in ((httpclient, FLAGS.url), (grpcclient, FLAGS.grpc_url)):
        client = lib.InferenceServerClient(url=url)
        results = await asyncio.gather(*[one(lib, client, k) for k in range(64)])
        print(results[:5])
        if results != list(range(1, 65)):
            sys.exit(1)
        await everything(lib, client)
        slow = lib.InferInput("INPUT", [1], "FP32")
        slow.set_data_from_numpy(np.array([5], np.float32))
        try:
            await asyncio.wait_for(client.infer("slow", [slow]), 0.2)
            sys.exit(1)
        except asyncio.TimeoutError:
            print("too slow for me")
        await client.close()
        async with lib.InferenceServerClient(url) as client:
            try:
                await client.infer("nope", request(lib, 1))
                sys.exit(1)
            except InferenceServerException as e:
                print(e.status())
    print("PASS: aio")


if __name__ == '__main__':
    asyncio.run(main())
