# a server that looks for models by itself, we drop some into its folder
import os, shutil, sys, tempfile
import pytriton.inprocess as ts

src = sys.argv[1]
repo = tempfile.mkdtemp()
shutil.copytree(src + "/params", repo + "/params")
with ts.Server(model_repository=[repo], model_control_mode=ts.ModelControlMode.POLL) as server:
    print([k for k in server.models()])
    shutil.copytree(src + "/counter", repo + "/counter")
    server.poll_model_repository()
    print(sorted(server.models()))
    assert server.model("counter").ready()
    shutil.rmtree(repo + "/params")
    server.poll_model_repository()
    print(sorted(k[0] for k in server.models(True)))
    try:
        server.load("counter")
        print("loaded in POLL mode??")
    except ts.TritonError as err:
        print(err.__class__.__name__)
    try:
        server.register_model_repository("/tmp")
        print("registered in POLL mode??")
    except (ts.UnsupportedError, ts.InvalidArgumentError) as err:
        print(err.__class__.__name__)
shutil.copytree(src + "/params", repo + "/only_at_start")
open(repo + "/only_at_start/config.pbtxt", "w").write(open(src + "/params/config.pbtxt").read().replace('name: "params"', ""))
with ts.Server(model_repository=repo, model_control_mode=ts.ModelControlMode.NONE) as server:
    print(sorted(server.models()))
    try:
        server.load("counter")
        print("loaded in NONE mode??")
    except ts.TritonError as err:
        print(err.__class__.__name__)
shutil.rmtree(repo)
