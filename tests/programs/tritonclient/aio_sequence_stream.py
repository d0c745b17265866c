import argparse, asyncio, sys
import numpy as np
import tritonclient.grpc.aio as grpcclient
from tritonclient.utils import InferenceServerException

FLAGS = None


async def main(FLAGS):
    model_name = "simple_sequence"
    values = [11, 7, 5, 3, 2, 0, 1]
    result_list = {5001: [], 5002: []}

    async def async_request_iterator():
        try:
            for k, v in enumerate(values):
                for seq, sign in ((5001, 1), (5002, -1)):
                    inputs = [grpcclient.InferInput('INPUT', [1, 1], "INT32")]
                    inputs[0].set_data_from_numpy(np.full([1, 1], sign * v, np.int32))
                    yield {"model_name": model_name, "inputs": inputs, "outputs": [grpcclient.InferRequestedOutput('OUTPUT')],
                           "request_id": "{}_{}".format(seq, k), "sequence_id": seq,
                           "sequence_start": k == 0, "sequence_end": k == len(values) - 1}
        except Exception as e:
            print(f"Error occurred in the async request iterator: {e}")

    async with grpcclient.InferenceServerClient(url=FLAGS.url, verbose=FLAGS.verbose) as triton_client:
        response_iterator = triton_client.stream_infer(inputs_iterator=async_request_iterator(),
                                                       stream_timeout=FLAGS.stream_timeout)
        async for response in response_iterator:
            result, error = response
            if error:
                print(error); sys.exit(1)
            result_list[int(result.get_response().id.split('_')[0])].append(int(result.as_numpy('OUTPUT')[0][0]))
        print(result_list)
        if result_list != {5001: np.cumsum(values).tolist(), 5002: [-x for x in np.cumsum(values).tolist()]}:
            sys.exit(1)

        # leave in the middle
        async def forever():
            yield {"model_name": "repeat_int32", "inputs": repeat([1, 2, 3], 0)}
            await asyncio.sleep(3600)

        def repeat(numbers, wait):
            n = len(numbers)
            i = [grpcclient.InferInput("IN", [n], "INT32"), grpcclient.InferInput("DELAY", [n], "UINT32"), grpcclient.InferInput("WAIT", [1], "UINT32")]
            i[0].set_data_from_numpy(np.array(numbers, np.int32)); i[1].set_data_from_numpy(np.zeros(n, np.uint32)); i[2].set_data_from_numpy(np.array([wait], np.uint32))
            return i

        it = triton_client.stream_infer(forever())
        got = []
        async for result, error in it:
            got.append(int(result.as_numpy("OUT")[0]))
            if len(got) == 3:
                it.cancel()
                break
        print(got)

        async def broken():
            yield {"inputs": []}
        try:
            async for _ in triton_client.stream_infer(broken()):
                pass
            sys.exit(1)
        except (InferenceServerException, asyncio.CancelledError) as e:
            print("no model name:", type(e).__name__)
    print("PASS: Sequence")

if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('-v', '--verbose', action="store_true", default=False)
    parser.add_argument('-u', '--url', type=str, default='localhost:8001')
    parser.add_argument('-t', '--stream-timeout', type=float, default=None)
    FLAGS = parser.parse_args()
    asyncio.run(main(FLAGS))
