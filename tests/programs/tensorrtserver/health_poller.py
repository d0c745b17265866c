#!/usr/bin/env python
# wait until the inference server is up, the way every docker entrypoint did it
from __future__ import print_function
import argparse
import sys
import time
from pytriton.compat.tensorrtserver.api import *

parser = argparse.ArgumentParser()
parser.add_argument('-u', '--url', type=str, required=False, default='localhost:8000')
parser.add_argument('-i', '--protocol', type=int, required=False, default=0, help='0: http, 1: grpc')
parser.add_argument('-d', '--dead', type=str, required=False, default='localhost:1')
FLAGS = parser.parse_args()


def wait(url, seconds):
    deadline = time.time() + seconds
    while time.time() < deadline:
        try:
            ctx = ServerHealthContext(url, FLAGS.protocol, False)
            if ctx.is_live() and ctx.is_ready():
                print("up, request", ctx.get_last_request_id() is not None)
                ctx.close()
                ctx.close()
                return ctx.get_last_request_id()
        except InferenceServerException as ex:
            last = ex
            time.sleep(0.1)
        except:
            print("what is that?", sys.exc_info())
            sys.exit(2)
    print("down:", type(last).__name__, last.message() is not None, last.server_id(), isinstance(last.request_id(), int))
    return None


if not wait(FLAGS.url, 30):
    sys.exit(1)
if wait(FLAGS.dead, 0.5) is not None:
    sys.exit(1)
print("PASS: health")
