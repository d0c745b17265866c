# counts cats and dogs beside the server's own metrics
import re
import sys

from pytriton import inprocess as ts
from pytriton.inprocess import Metric, MetricFamily, MetricKind

server = ts.Server(model_repository=sys.argv[1], model_control_mode=ts.ModelControlMode.EXPLICIT)
server.start()
family = MetricFamily(MetricKind.COUNTER, "animals_seen", "how many of them")
cats = Metric(family, {"animal": "cat"})
dogs = Metric(family, labels={"animal": "dog", "big": "yes"})
temperature = Metric(MetricFamily(MetricKind.GAUGE, "temperature", "in C"))
for i in range(5):
    cats.increment(1)
dogs.increment(2.5)
temperature.set_value(-4)
temperature.increment(1)
print(cats.value, dogs.value, temperature.value, int(cats.kind), temperature.kind == MetricKind.GAUGE)
for line in sorted(server.metrics().splitlines()):
    if re.match("animals|temperature", line):
        print(line)
try:
    cats.increment(-1)
    print("counted down")
except ts.TritonError as e:
    print(type(e).__name__)
try:
    cats.set_value(0)
    print("set a counter")
except ts.TritonError as e:
    print(type(e).__name__)
del cats, dogs, family
print("animals_seen{" in server.metrics())
server.stop()
