import argparse
import sys
import time
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('-v', '--verbose', action="store_true", default=False)
    parser.add_argument('-i', default='http')
    parser.add_argument('-u', '--url', type=str, default='localhost:8000')
    FLAGS = parser.parse_args()
    lib = httpclient if FLAGS.i == 'http' else grpcclient
    try:
        triton_client = lib.InferenceServerClient(url=FLAGS.url, verbose=FLAGS.verbose)
    except Exception as e:
        print("context creation failed: " + str(e))
        sys.exit()

    model_name = 'controlled'

    def index():
        ix = triton_client.get_model_repository_index()
        return ix if FLAGS.i == 'http' else [{"name": m.name, "state": m.state, "version": m.version} for m in ix.models]

    # There are more, but mine is ready
    print(index())
    if ('READY') not in [m.get("state") for m in index() if m["name"] == model_name]:
        sys.exit(1)
    if not triton_client.is_model_ready(model_name):
        sys.exit(1)

    triton_client.unload_model(model_name)
    # that takes a moment, but is_model_ready knows at once
    if triton_client.is_model_ready(model_name):
        print('FAILED : Unload Model')
        sys.exit(1)
    for _ in range(300):
        if [m.get("state") for m in index() if m["name"] == model_name] == ["UNAVAILABLE"]:
            break
        time.sleep(0.1)

    triton_client.load_model(model_name)
    if not triton_client.is_model_ready(model_name):
        print('FAILED : Load Model')
        sys.exit(1)

    # unknown ones
    try:
        triton_client.load_model("wrong_model_name")
        sys.exit(1)
    except InferenceServerException as e:
        if "failed to load" not in e.message():
            sys.exit(1)
        print(e.message())
    triton_client.unload_model(model_name, unload_dependents=True)
    triton_client.load_model(model_name, {}, None) if FLAGS.i == 'http' else triton_client.load_model(model_name, None, None)
    if not triton_client.is_model_ready(model_name, "1"):
        sys.exit(1)
    print('PASS: Model Control')
