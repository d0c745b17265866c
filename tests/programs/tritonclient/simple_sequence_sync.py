# http or grpc, two sequences one request after the other
import argparse
import sys
import numpy as np
import tritonclient.grpc
import tritonclient.http

parser = argparse.ArgumentParser()
parser.add_argument('-i', '--protocol', default='HTTP')
parser.add_argument('-u', '--url')
FLAGS = parser.parse_args()
protocol = FLAGS.protocol.lower()
lib = {"http": tritonclient.http, "grpc": tritonclient.grpc}[protocol]
client = lib.InferenceServerClient(FLAGS.url)
ids = [2001 if protocol == "http" else 3001, 2002 if protocol == "http" else 3002]
values = [11, 7, 5, 3, 2, 0, 1]
sums = [[], []]
for k, value in enumerate(values):
    for j in 0, 1:
        data = np.full([1, 1], value if j == 0 else -value, np.int32)
        tensor = lib.InferInput("INPUT", [1, 1], "INT32"); tensor.set_data_from_numpy(data)
        r = client.infer("simple_sequence", [tensor], sequence_id=ids[j], sequence_start=k == 0, sequence_end=k == len(values) - 1)
        sums[j].append(int(r.as_numpy("OUTPUT")[0, 0]))
print(sums)
if sums != [np.cumsum(values).tolist(), (-np.cumsum(values)).tolist()]:
    print("error: incorrect result"); sys.exit(1)

# a request in the middle of a sequence that never began
try:
    client.infer("simple_sequence", [tensor], sequence_id=99999)
    sys.exit(1)
except Exception as e:
    print("error, fine:", e)
client.close()
print("PASS: Sequence")
