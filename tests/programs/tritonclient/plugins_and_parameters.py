import argparse, base64, json, sys
import numpy as np
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.grpc import InferenceServerClientPlugin
from tritonclient.grpc.auth import BasicAuth as GrpcAuth
from tritonclient.http.auth import BasicAuth
from tritonclient.utils import InferenceServerException

parser = argparse.ArgumentParser()
parser.add_argument("-u"); parser.add_argument("-g")
FLAGS = parser.parse_args()


class MyPlugin(InferenceServerClientPlugin):
    count = 0

    def __call__(self, request):
        MyPlugin.count += 1
        request.headers["x-my-header"] = "mine-%d" % MyPlugin.count


def ask(lib, client, **kw):
    x = lib.InferInput("X", [1], "FP32")
    x.set_data_from_numpy(np.zeros(1, np.float32))
    return json.loads(client.infer("params", [x], **kw).as_numpy("SEEN")[0])


for lib, url, auth in ((httpclient, FLAGS.u, BasicAuth), (grpcclient, FLAGS.g, GrpcAuth)):
    client = lib.InferenceServerClient(url)
    if client.plugin() is not None:
        sys.exit(1)
    client.register_plugin(MyPlugin())
    seen = ask(lib, client, headers={"x-other": "yes"}, request_id="id-7", priority=0, timeout=0,
               parameters={"text": "v", "number": 2**40, "flag": True})
    print(seen)
    if seen["x-other"] != "yes" or not seen["x-my-header"].startswith("mine-"):
        sys.exit(1)
    if seen["text"] != "v" or seen["number"] != 2**40 or seen["flag"] is not True:
        sys.exit(1)
    try:
        client.register_plugin(MyPlugin()); sys.exit(1)
    except InferenceServerException as e:
        print(e)
    client.unregister_plugin()
    try:
        client.unregister_plugin(); sys.exit(1)
    except InferenceServerException as e:
        print(e)
    client.register_plugin(auth("me", "secret"))
    seen = ask(lib, client)
    if seen.get("authorization") != "Basic " + base64.b64encode(b"me:secret").decode():
        print(seen); sys.exit(1)
    for bad in ({"sequence_id": 3}, {"triton_x": 1}):
        try:
            ask(lib, client, parameters=bad); sys.exit(1)
        except InferenceServerException as e:
            print(e)
    client.close()
print(client._get_metadata({"a": "b"}))
print("PASS: plugins")
