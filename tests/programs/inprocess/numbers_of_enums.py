# prints the enums, for the C++ people
import pytriton.inprocess as t
for e in "MemoryType DataType ModelControlMode RateLimitMode LogFormat MetricFormat ModelBatchFlag ModelTxnPropertyFlag InstanceGroupKind MetricKind DLDeviceType".split():
    enum = getattr(t, e)
    print(e, " ".join("%s=%d" % (m.name, m) for m in enum))
assert t.ModelControlMode.EXPLICIT == t.ModelControlMode(2) and t.ModelControlMode["POLL"].value == 1
assert t.InstanceGroupKind.AUTO != t.InstanceGroupKind.MODEL
both = t.ModelTxnPropertyFlag.ONE_TO_ONE | t.ModelTxnPropertyFlag.DECOUPLED
print(int(both), t.ModelBatchFlag.UNKNOWN.name)
