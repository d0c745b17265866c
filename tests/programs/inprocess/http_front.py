# small web server in front of the in-process server, asyncio only
import argparse
import asyncio
import json
import urllib.request

import numpy as np
from pytriton import inprocess as tritonserver

parser = argparse.ArgumentParser(description="generate endpoint")
parser.add_argument("--repository", default="./models")
parser.add_argument("--port", default=0, type=int)
FLAGS = parser.parse_args()
server = tritonserver.Server(model_repository=FLAGS.repository, model_control_mode=tritonserver.ModelControlMode.EXPLICIT)


async def handle(reader, writer):
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = [int(l.split(":")[1]) for l in head.lower().split("\r\n") if l.startswith("content-length")][0]
    prompt = json.loads(await reader.readexactly(length))["prompt"]
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
    try:
        async for response in server.model("chatter").async_infer(inputs={"prompt": [prompt]}):
            if response.outputs:
                word = response.outputs["word"].to_string_array()[0]
                writer.write(("data: %s\n\n" % json.dumps({"word": word})).encode())
                await writer.drain()
    except tritonserver.TritonError as e:
        writer.write(("data: %s\n\n" % json.dumps({"error": str(e)})).encode())
    writer.close()


def client(port, prompt):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    data = json.dumps({"prompt": prompt}).encode()
    body = opener.open(urllib.request.Request("http://127.0.0.1:%d/generate" % port, data, {"Content-Type": "application/json"}), timeout=60).read().decode()
    return [json.loads(line[6:]) for line in body.split("\n\n") if line]


async def main():
    server.start(wait_until_ready=True)
    server.load("chatter")
    web = await asyncio.start_server(handle, "127.0.0.1", FLAGS.port)
    port = web.sockets[0].getsockname()[1]
    loop = asyncio.get_running_loop()
    answers = await asyncio.gather(*[loop.run_in_executor(None, client, port, p) for p in ("to be or not to be", "one", "")])
    for a in answers:
        print(a)
    web.close()
    server.stop()


asyncio.run(main())
