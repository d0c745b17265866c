import argparse, sys
import tritonclient.grpc, tritonclient.http
p = argparse.ArgumentParser()
p.add_argument('-u', '--url'); p.add_argument('-g', '--grpc-url'); p.add_argument('-m', default='simple')
a = p.parse_args()
http = tritonclient.http.InferenceServerClient(a.url, True)
grpc = tritonclient.grpc.InferenceServerClient(a.grpc_url, verbose=True)
for c in http, grpc:
    if not c.is_server_live(): print("FAILED : is_server_live"); sys.exit(1)
    if not c.is_server_ready(): print("FAILED : is_server_ready"); sys.exit(1)
    if not c.is_model_ready(a.m): print("FAILED : is_model_ready"); sys.exit(1)
    if c.is_model_ready("nope"): sys.exit(1)
    if c.is_model_ready(a.m, "7"): sys.exit(1)
m = http.get_server_metadata()
print(m)
if m['name'] != 'triton' or 'classification' not in m['extensions']: sys.exit(1)
g = grpc.get_server_metadata(headers={'test': '1'})
if g.name != 'triton' or list(g.extensions) != m['extensions'] or g.version != m['version']: sys.exit(1)
if grpc.get_server_metadata(as_json=True)["name"] != "triton": sys.exit(1)
mm = http.get_model_metadata(a.m, query_params={'test_1': 1, 'test_2': [2, 3]})
gm = grpc.get_model_metadata(a.m)
print(mm)
assert mm['name'] == gm.name == a.m and list(gm.versions) == mm['versions']
assert [i['name'] for i in mm['inputs']] == [i.name for i in gm.inputs] == ['INPUT0', 'INPUT1']
assert mm['inputs'][0]['shape'] == [-1, 16] and mm['inputs'][0]['datatype'] == 'INT32'
mc, gc = http.get_model_config(a.m), grpc.get_model_config(a.m).config
if not (mc['name'] == gc.name == a.m): print("FAILED: get_model_config"); sys.exit(1)
if mc['max_batch_size'] != 8 or gc.max_batch_size != 8: sys.exit(1)
if grpc.get_model_config(a.m, as_json=True)["config"]["max_batch_size"] != 8: sys.exit(1)
for c in http, grpc:
    try:
        c.get_model_metadata("wrong_model_name"); sys.exit(1)
    except Exception as e:
        if "Request for unknown model" not in str(e): raise
log = http.get_log_settings(); print(log)
grpc_log = grpc.get_log_settings()
assert grpc_log.settings["log_format"].string_param == log["log_format"]
old = log["log_verbose_level"]
assert http.update_log_settings({"log_verbose_level": 1})["log_verbose_level"] == 1
assert grpc.update_log_settings({"log_verbose_level": old}).settings["log_verbose_level"].uint32_param == old
t = http.get_trace_settings(); print(t)
assert http.update_trace_settings(settings={"trace_rate": "500"})["trace_rate"] == "500"
assert grpc.get_trace_settings().settings["trace_rate"].value[0] == "500"
grpc.update_trace_settings(settings={"trace_rate": t["trace_rate"]})
assert grpc.update_trace_settings(a.m, {"trace_count": "3"}).settings["trace_count"].value[0] == "3"
http.update_trace_settings(a.m, {"trace_count": None})
assert http.get_trace_settings(a.m)["trace_count"] == t["trace_count"]
http.close(); grpc.close()
print("PASS: health and metadata")
