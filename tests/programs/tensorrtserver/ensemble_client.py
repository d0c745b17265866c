#!/usr/bin/env python
import argparse
from pytriton.compat.tensorrtserver.api import *
import pytriton.compat.tensorrtserver.api.model_config_pb2 as model_config
import random, re

# Ensemble: raw text in, class out. The client checks the ensemble's configuration first.
parser = argparse.ArgumentParser()
parser.add_argument('-v', '--verbose', action="store_true", default=False)
parser.add_argument('-c', '--classes', type=int, default=2)
parser.add_argument('-u', '--url', type=str, default='localhost:8000')
parser.add_argument('-i', '--protocol', type=str, default='HTTP')
FLAGS = parser.parse_args()
protocol = ProtocolType.from_str(FLAGS.protocol)

model_name = "preprocess_ensemble"
status = ServerStatusContext(FLAGS.url, protocol, model_name, FLAGS.verbose).get_server_status()
config = status.model_status[model_name].config
if len(config.input) != 1 or config.input[0].data_type != model_config.TYPE_STRING:
    print("unexpected input", config.input)
    sys.exit(1)
input_name = config.input[0].name
output_name = config.output[0].name
ctx = InferContext(FLAGS.url, protocol, model_name, -1, FLAGS.verbose)
images = ["1,5,3,2", "9,0,0,1", "0,0,0,4"]
input_batch = [np.array([t], dtype=object) for t in images]
# a raw image as bytes, as read from a file
input_batch[2] = np.array([images[2].encode()], dtype=bytes)
result = ctx.run({input_name: input_batch},
                 {output_name: (InferContext.ResultFormat.CLASS, FLAGS.classes)}, len(input_batch))
for name, batch in result.items():
    for i, r in enumerate(batch):
        print(images[i], [(int(c[0]), float(c[1])) for c in r])
best = [r[0][0] for r in result[output_name]]
if best != [1, 0, 3]:
    print("error")
    sys.exit(1)
print("PASS: ensemble")
