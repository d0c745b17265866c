#!/usr/bin/env python3
# no client library for the transport: urllib, and generate/parse of the body
import argparse, gzip, json, sys, urllib.request
import numpy as np
import tritonclient.http as httpclient
from tritonclient.http import InferenceServerClient, InferResult

ap = argparse.ArgumentParser(); ap.add_argument("-u", "--url"); args = ap.parse_args()
BASE = "http://" + args.url + "/v2/"


def post(path, body, **headers):
    req = urllib.request.Request(BASE + path, body, {k.replace("_", "-"): str(v) for k, v in headers.items()})
    with urllib.request.urlopen(req, timeout=30) as r:
        return r.read(), r.headers


x = [httpclient.InferInput("INPUT0", (2, 16), "INT32"), httpclient.InferInput("INPUT1", (2, 16), "INT32")]
x[0].set_data_from_numpy(np.arange(32, dtype=np.int32).reshape(2, 16))
x[1].set_data_from_numpy(np.ones((2, 16), np.int32))
body, json_size = InferenceServerClient.generate_request_body(
    x, outputs=[httpclient.InferRequestedOutput("OUTPUT0"), httpclient.InferRequestedOutput("OUTPUT1", binary_data=False)],
    request_id="raw", parameters={"custom": 7})
answer, headers = post("models/simple/infer", body, Inference_Header_Content_Length=json_size)
size = int(headers["Inference-Header-Content-Length"])
result = InferenceServerClient.parse_response_body(answer, header_length=size)
same = InferResult.from_response_body(answer, False, size)
print(result.get_response()["id"], result.as_numpy("OUTPUT0")[1][:4], same.as_numpy("OUTPUT1")[1][:4])
if (result.as_numpy("OUTPUT0") != np.arange(1, 33).reshape(2, 16)).any() or (same.as_numpy("OUTPUT1") != np.arange(-1, 31).reshape(2, 16)).any():
    sys.exit(1)
packed, headers = post("models/simple/infer", gzip.compress(body), Inference_Header_Content_Length=json_size,
                       Content_Encoding="gzip", Accept_Encoding="gzip")
again = InferResult.from_response_body(packed, False, int(headers["Inference-Header-Content-Length"]), "gzip")
if (again.as_numpy("OUTPUT0") != result.as_numpy("OUTPUT0")).any():
    sys.exit(1)

# JSON by hand
doc = {"inputs": [{"name": n, "datatype": "INT32", "shape": [1, 16], "data": list(range(16))} for n in ("INPUT0", "INPUT1")]}
text, _ = post("models/simple/versions/1/infer", json.dumps(doc).encode(), Content_Type="application/json")
print([o["name"] for o in json.loads(text)["outputs"]], json.loads(text)["outputs"][0]["data"][:4])
if json.loads(text)["outputs"][0]["data"] != list(range(0, 32, 2)):
    sys.exit(1)
text, _ = post("models/generator/generate", json.dumps({"PROMPT": "hello world", "custom": 1}).encode())
print(json.loads(text)["TEXT"])
if json.loads(text)["TEXT"] != "HELLO WORLD":
    sys.exit(1)
# methods with an underscore, which people use anyway
client = InferenceServerClient(args.url)
r = client._get("v2/health/live", None, None)
print(r.status_code)
r = client._post("v2/models/generator/generate", json.dumps({"PROMPT": "x"}), None, None)
if json.loads(r.read())["TEXT"] != "X":
    sys.exit(1)
client._validate_headers({"ok": "1"})
try:
    client.infer("simple", x, headers={"Transfer-Encoding": "chunked"}); sys.exit(1)
except Exception as e:
    print(str(e)[:60])
print(x[0]._get_tensor()["name"], len(x[0]._get_binary_data()))
print("PASS: raw")
