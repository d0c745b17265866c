#!/usr/bin/env python
# one dict for the answers of several contexts, by request id
import argparse
from pytriton.compat.tensorrtserver.api import *

parser = argparse.ArgumentParser()
parser.add_argument('-u', '--url', default='localhost:8000')
parser.add_argument('-i', '--protocol', default='http')
args = parser.parse_args()
proto = ProtocolType.from_str(args.protocol)
contexts = [InferContext(args.url, proto, 'simple', -1) for _ in range(3)]
answers, lock, all_done = {}, threading.Lock(), threading.Event()


def collect(ctx, request_id):
    r = ctx.get_async_run_results(request_id)
    with lock:
        answers[request_id] = int(r['OUTPUT0'][0][0])
        if len(answers) == 9:
            all_done.set()


z = np.zeros(16, dtype=np.int32)
for n in range(9):
    contexts[n % 3].async_run(collect, {'INPUT0': [z + n], 'INPUT1': [z]}, {'OUTPUT0': InferContext.ResultFormat.RAW})
if not all_done.wait(30):
    print("only", answers)
    sys.exit(1)
print(sorted(answers.values()))
ids = []
for ctx in contexts:
    ctx.run({'INPUT0': [z], 'INPUT1': [z]}, {'OUTPUT0': InferContext.ResultFormat.RAW})
    ids.append(ctx.get_last_request_id())
    ctx.close()
print("ids differ:", len(set(ids) | set(answers)) == 12)
for ctx in contexts:
    print(ctx.get_last_request_model_name(), ctx.get_last_request_model_version(), ctx.get_last_request_id() in ids)
try:
    contexts[0].run({'INPUT0': [z], 'INPUT1': [z]}, {'OUTPUT0': InferContext.ResultFormat.RAW})
    sys.exit(1)
except InferenceServerException as ex:
    print("closed:", ex)
health = ServerHealthContext(args.url, proto)
print("before:", health.get_last_request_id())
health.is_live()
health.close()
print("after:", health.get_last_request_id() is not None)
print("PASS: last_request")
