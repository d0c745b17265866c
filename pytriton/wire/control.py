"""The words of messages that are no frames: between a program and its worker processes, remote workers and proxies.

To a worker process they travel through a pipe, pickled, as a word and its details; elsewhere over ZeroMQ, as a word and
JSON (``cluster/messages.py`` shows the order).

==================  ==============  ==========================================================================
word                from            meaning, and details
==================  ==============  ==========================================================================
hello               worker, proxy   who it is, and whom it wants
welcome             both            what the worker has to know; with "derive", the tensors are not known yet; of a
                                    process: what a server elsewhere has told it
ready               worker          its callable is warmed up; of a process: is_async; else: how many batches it takes
derived             worker          the model's tensors, which was all that it was asked for
refused             both            why a peer may not join, or the tensors cannot be derived
failed              worker          it cannot start, and ends: a traceback
observe             program         report batches from now on
report              worker          for metrics, see pool/batch_reports.py
record              program         question: record requests as this ``Recording`` says, or no longer; answered when
                                    all records were sent
recorded            worker          records, and how many requests were dropped and were too large since the last ones
drain               program         accept nothing more, answer what has arrived, and end; of the application: within s
end pages           program         end the streams of the pages that are open, which have no end of their own
leave               worker          it wants to drain: no further batch, please
bye                 both            the end of a connection is nobody's death
memory              worker          of its process, in bytes: private (USS), and proportional (PSS); of remote ones
taken               worker          the callable is about to get this batch; of a process: it serves the connection
probe               program         nothing; tells the sender whether the peer is there
fork                program         to a template: fork a worker with the descriptors that follow
hand over           program         hand the connections to proxies over, and end
connection          both            a connection to a proxy: its state, with three descriptors that follow
quiet               program         question: seconds since the last batch; 0 while one is answered
rebind              program         question: call the factory of this pickled ``WorkerSpec`` and serve its callable;
                                    answered with an empty text, or with the traceback
answer              worker          to the question with this number
call                worker          of a model by the callable of a remote worker, as a frame
result              program         of a call, or an error, or a response of a stream, as a frame
connected           worker          a proxy has connected
disconnected        worker          a proxy has disconnected: is another one connected, did the server close it
unrecoverable       worker          the callable wants the server to stop
max_requests        worker          it has been sent as many as it may answer
log                 worker          the fields of a record of :mod:`logging`
==================  ==============  ==========================================================================

The end of the pipe ends a worker process when its callable has returned.
"""

HELLO, WELCOME, REFUSED, READY, TAKEN, LEAVE, BYE, PROBE, OBSERVE, REPORT, DERIVED, RECORD, RECORDED, MEMORY = (
    *(b"hello", b"welcome", b"refused", b"ready", b"taken", b"leave", b"bye", b"probe"),
    *(b"observe", b"report", b"derived", b"record", b"recorded", b"memory"),
)
FAILED, DRAIN, QUIET, REBIND, ANSWER, CONNECTED, DISCONNECTED, UNRECOVERABLE, MAX_REQUESTS, LOG, END_PAGES, FORK = (
    *(b"failed", b"drain", b"quiet", b"rebind", b"answer", b"connected", b"disconnected"),
    *(b"unrecoverable", b"max_requests", b"log", b"end pages", b"fork"),
)
HAND_OVER, CONNECTION, CALL, RESULT = b"hand over", b"connection", b"call", b"result"
CONNECTION_DESCRIPTORS = 3
