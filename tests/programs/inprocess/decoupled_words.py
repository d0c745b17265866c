# streams words, like a chat
import sys
from queue import SimpleQueue
from threading import Thread

from pytriton import inprocess as tritonserver

server = tritonserver.Server(model_repository=sys.argv[1], model_control_mode=tritonserver.ModelControlMode.EXPLICIT).start()
chatter = server.load("chatter")
print("decoupled:", bool(chatter.transaction_properties() & tritonserver.ModelTxnPropertyFlag.DECOUPLED))


def say(prompt, **kw):
    return chatter.infer(inputs={"prompt": [prompt]}, **kw)


words = say("the quick brown fox")
assert isinstance(words, tritonserver.ResponseIterator) and iter(words) is words
print(" ".join(r.outputs["word"].to_string_array()[0] for r in words if r.outputs))

# a thread puts them into a queue for the window
q = SimpleQueue()
Thread(target=lambda: [None for _ in say("größe ünd weite", response_queue=q)]).start()
while True:
    r = q.get()
    if r.outputs:
        print(r.outputs["word"].to_bytes_array()[0].decode("utf8"), end=" ")
    if r.final:
        break
print()

try:
    for r in say(""):
        print("empty", r)
        sys.exit(1)
except tritonserver.TritonError as e:
    print(type(e).__name__, "|", e.args[0], "|", type(e.args[-1]).__name__, e.args[-1].error is e)

for r in say("", raise_on_error=False):
    print(r.error, r.outputs, r.final, r.classification_label, r.parameters)

# an iterator that nobody reads must not hurt
for i in range(20):
    say("drop me please")
it = say("one two three")
print(next(it).outputs["word"].to_string_array()[0])
it.cancel()
it.cancel()
rest = []
try:
    for r in it:
        rest.append(r)
except:
    pass
it.cancel()
del it
server.stop()
print("bye")
