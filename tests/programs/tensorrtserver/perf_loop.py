#!/usr/bin/env python
# poor man's perf_client
import argparse, time
from pytriton.compat.tensorrtserver.api import *

parser = argparse.ArgumentParser()
parser.add_argument('-u', '--url', default='localhost:8000')
parser.add_argument('-i', '--protocol', default='http')
parser.add_argument('-s', '--streaming', action='store_true')
parser.add_argument('-t', '--threads', type=int, default=3)
parser.add_argument('-n', '--requests', type=int, default=20)
parser.add_argument('-b', '--batch', type=int, default=8)
FLAGS = parser.parse_args()
protocol = ProtocolType.from_str(FLAGS.protocol)
latencies = []
lock = threading.Lock()
errors = []


class Worker(threading.Thread):
    def __init__(self, no):
        threading.Thread.__init__(self)
        self.no = no
        self.ctx = InferContext(FLAGS.url, protocol, 'simple', -1, False, 0, FLAGS.streaming)

    def run(self):
        try:
            a = [np.full(16, self.no, np.int32)] * FLAGS.batch
            for i in range(FLAGS.requests):
                start = time.time()
                r = self.ctx.run({'INPUT0': a, 'INPUT1': a}, {'OUTPUT0': InferContext.ResultFormat.RAW}, FLAGS.batch)
                with lock:
                    latencies.append(time.time() - start)
                if len(r['OUTPUT0']) != FLAGS.batch or r['OUTPUT0'][-1][15] != 2 * self.no:
                    errors.append(r)
        except:
            errors.append(sys.exc_info())


workers = [Worker(n) for n in range(FLAGS.threads)]
[w.start() for w in workers]
[w.join() for w in workers]
if errors:
    print(errors[0])
    sys.exit(1)
total = FLAGS.threads * FLAGS.requests
stats = [w.ctx.get_stat() for w in workers]
for s in stats:
    if s['completed_request_count'] != FLAGS.requests:
        sys.exit(1)
    if not s['cumulative_total_request_time_ns'] > s['cumulative_send_time_ns'] + s['cumulative_receive_time_ns'] > 0:
        sys.exit(1)
print("p50 %.2f ms p99 %.2f ms" % tuple(1000 * np.percentile(latencies, (50, 99))))
print("PASS: %d requests of batch %d" % (len(latencies), FLAGS.batch))
if len(latencies) != total: sys.exit(1)
