"""Client of add_sub_server.py, with whatever is given on the command line."""
import argparse
import logging

import numpy as np
from pytriton.client import ModelClient
from pytriton.client.exceptions import PyTritonClientError

logger = logging.getLogger("add_sub_client")

p = argparse.ArgumentParser()
p.add_argument("-u", "--url", default="localhost")
p.add_argument("--init-timeout-s", type=float, default=60.0)
p.add_argument("--inference-timeout-s", type=float, default=30.0)
args = p.parse_args()

a = np.arange(6, dtype=np.float32).reshape(2, 3)
b = np.ones((2, 3), dtype=np.float32)
try:
    client = ModelClient(args.url, "AddSub", "1", lazy_init=False, init_timeout_s=args.init_timeout_s,
                         inference_timeout_s=args.inference_timeout_s)
    out = client.infer_batch(INPUT_1=a, INPUT_2=b)
    out2 = client.infer_batch(a, b)
    for k in out:
        assert (out[k] == out2[k]).all()
    print("add", out["add"].tolist())
    print("sub", out["sub"].tolist())
    big = np.zeros((17, 3), np.float32)
    try:
        client.infer_batch(big, big)
        print("no error??")
    except PyTritonClientError as ex:
        print("too large:", "batch-size must be <=" in str(ex))
    client.close()
    client.close()
except:
    import traceback
    traceback.print_exc()
    exit(1)
