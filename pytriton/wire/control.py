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
alive               worker          the event loop of the app's process runs; every few seconds
derived             worker          the model's tensors, which was all that it was asked for
refused             both            why a peer may not join, or the tensors cannot be derived
failed              worker          it cannot start, and ends: a traceback
observe             program         report batches from now on
report              worker          for metrics, see pool/batch_reports.py
record              program         record requests as this ``NumberedRecording`` says, or no longer; what follows is
                                    read when all earlier records were sent
recorded            worker          number of the recording, records, and how many requests were dropped and were too
                                    large since the last ones
drain               program         accept nothing more, answer what has arrived, and end; of the application: within s
end pages           program         end the streams of the pages that are open, which have no end of their own
leave               worker          it wants to drain: no further batch, please
bye                 both            the sender ends the connection; it has not failed
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

HELLO = b"hello"
WELCOME = b"welcome"
READY = b"ready"
ALIVE = b"alive"
DERIVED = b"derived"
REFUSED = b"refused"
FAILED = b"failed"
OBSERVE = b"observe"
REPORT = b"report"
RECORD = b"record"
RECORDED = b"recorded"
DRAIN = b"drain"
END_PAGES = b"end pages"
LEAVE = b"leave"
BYE = b"bye"
MEMORY = b"memory"
TAKEN = b"taken"
PROBE = b"probe"
FORK = b"fork"
HAND_OVER = b"hand over"
CONNECTION = b"connection"
QUIET = b"quiet"
REBIND = b"rebind"
ANSWER = b"answer"
CALL = b"call"
RESULT = b"result"
CONNECTED = b"connected"
DISCONNECTED = b"disconnected"
UNRECOVERABLE = b"unrecoverable"
MAX_REQUESTS = b"max_requests"
LOG = b"log"

CONNECTION_DESCRIPTORS = 3
