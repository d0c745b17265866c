# load a model with a bit of configuration of my own
import argparse, json, sys, time
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('-u', '--url', type=str, default='localhost:8000')
    parser.add_argument('-i', default='http')
    FLAGS = parser.parse_args()
    model_name = "controlled"
    lib = httpclient if FLAGS.i == 'http' else grpcclient
    triton_client = lib.InferenceServerClient(FLAGS.url)

    def size():
        c = triton_client.get_model_config(model_name)
        return c["max_batch_size"] if FLAGS.i == 'http' else c.config.max_batch_size

    triton_client.load_model(model_name)
    if not triton_client.is_model_ready(model_name):
        print('FAILED : Load Model'); sys.exit(1)
    before = size()
    # from 8 to 16
    config = "{\"max_batch_size\":\"16\"}"
    triton_client.load_model(model_name, config=config)
    print(before, "->", size())
    if not triton_client.is_model_ready(model_name) or size() != 16:
        print('FAILED : Load Model with Config'); sys.exit(1)
    triton_client.load_model(model_name, config=json.dumps({"dynamicBatching": {"maxQueueDelayMicroseconds": "100"}}))
    if size() != 16:
        sys.exit(1)
    # nonsense must not hurt
    for wrong in '{"max_batch_size": "lots"}', '{"max_batch_size": ', '{"no_such_field": 1}':
        try:
            triton_client.load_model(model_name, config=wrong)
            print("should have failed:", wrong); sys.exit(1)
        except InferenceServerException as e:
            print(e)
        if not triton_client.is_model_ready(model_name):
            sys.exit(1)
    triton_client.unload_model(model_name)
    for i in range(100):
        if not triton_client.is_model_ready(model_name):
            break
        time.sleep(0.1)
    triton_client.load_model(model_name)
    if size() != before:
        sys.exit(1)
    print("PASS: Model Control")
