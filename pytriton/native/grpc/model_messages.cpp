// Messages that tell of the server and its models, as grpc_service.proto and model_config.proto have them; a test
// compares the tables with those of tritonclient.
#include <algorithm>
#include <iterator>

#include "json_message.h"

namespace pytriton::http {

namespace {

using Kind = MessageField::Kind;
constexpr Kind kFlag = Kind::flag, kInteger = Kind::integer, kReal = Kind::real, kNumber = Kind::number,
               kChoice = Kind::choice, kMessage = Kind::message, kMap = Kind::map, kNumberedMap = Kind::numbered_map;

constexpr MessageField kTensorMetadata[] = {{"name", 1}, {"datatype", 2}, {"shape", 3, kInteger}, {}};
constexpr MessageField kLatest[] = {{"num_versions", 1, kInteger}, {}};
constexpr MessageField kAll[] = {{}};
constexpr MessageField kSpecific[] = {{"versions", 1, kInteger}, {}};
constexpr MessageField kVersionPolicy[] = {
    {"latest", 1, kMessage, kLatest}, {"all", 2, kMessage, kAll}, {"specific", 3, kMessage, kSpecific}, {}};
constexpr MessageField kReshape[] = {{"shape", 1, kInteger}, {}};
constexpr MessageField kInput[] = {{"name", 1},
                                   {"data_type", 2, kChoice},
                                   {"format", 3, kChoice},
                                   {"dims", 4, kInteger},
                                   {"reshape", 5, kMessage, kReshape},
                                   {"is_shape_tensor", 6, kFlag},
                                   {"allow_ragged_batch", 7, kFlag},
                                   {"optional", 8, kFlag},
                                   {"is_non_linear_format_io", 9, kFlag},
                                   {}};
constexpr MessageField kOutput[] = {{"name", 1},
                                    {"data_type", 2, kChoice},
                                    {"dims", 3, kInteger},
                                    {"label_filename", 4},
                                    {"reshape", 5, kMessage, kReshape},
                                    {"is_shape_tensor", 6, kFlag},
                                    {"is_non_linear_format_io", 7, kFlag},
                                    {}};
constexpr MessageField kResource[] = {{"name", 1}, {"global", 2, kFlag}, {"count", 3, kInteger}, {}};
constexpr MessageField kRateLimiter[] = {{"resources", 1, kMessage, kResource}, {"priority", 2, kInteger}, {}};
constexpr MessageField kSecondaryDevice[] = {{"kind", 1, kChoice}, {"device_id", 2, kInteger}, {}};
constexpr MessageField kInstance[] = {{"name", 1},           {"count", 2, kInteger},
                                      {"gpus", 3, kInteger}, {"kind", 4, kChoice},
                                      {"profile", 5},        {"rate_limiter", 6, kMessage, kRateLimiter},
                                      {"passive", 7, kFlag}, {"secondary_devices", 8, kMessage, kSecondaryDevice},
                                      {"host_policy", 9},    {}};
constexpr MessageField kQueuePolicy[] = {{"timeout_action", 1, kChoice},
                                         {"default_timeout_microseconds", 2, kInteger},
                                         {"allow_timeout_override", 3, kFlag},
                                         {"max_queue_size", 4, kInteger},
                                         {}};
constexpr MessageField kDynamicBatching[] = {{"preferred_batch_size", 1, kInteger},
                                             {"max_queue_delay_microseconds", 2, kInteger},
                                             {"preserve_ordering", 3, kFlag},
                                             {"priority_levels", 4, kInteger},
                                             {"default_priority_level", 5, kInteger},
                                             {"default_queue_policy", 6, kMessage, kQueuePolicy},
                                             {"priority_queue_policy", 7, kNumberedMap, kQueuePolicy},
                                             {}};
constexpr MessageField kGraph[] = {{"level", 1, kInteger}, {}};
constexpr MessageField kGraphShape[] = {{"dim", 1, kInteger}, {}};
constexpr MessageField kGraphBound[] = {{"batch_size", 1, kInteger}, {"input", 2, kMap, kGraphShape}, {}};
constexpr MessageField kGraphSpec[] = {
    {"batch_size", 1, kInteger}, {"input", 2, kMap, kGraphShape}, {"graph_lower_bound", 3, kMessage, kGraphBound}, {}};
constexpr MessageField kCuda[] = {{"graphs", 1, kFlag},
                                  {"busy_wait_events", 2, kFlag},
                                  {"graph_spec", 3, kMessage, kGraphSpec},
                                  {"output_copy_stream", 4, kFlag},
                                  {}};
constexpr MessageField kAccelerator[] = {{"name", 1}, {"parameters", 2, kMap}, {}};
constexpr MessageField kAccelerators[] = {{"gpu_execution_accelerator", 1, kMessage, kAccelerator},
                                          {"cpu_execution_accelerator", 2, kMessage, kAccelerator},
                                          {}};
constexpr MessageField kPinnedMemory[] = {{"enable", 1, kFlag}, {}};
constexpr MessageField kOptimization[] = {{"graph", 1, kMessage, kGraph},
                                          {"priority", 2, kChoice},
                                          {"cuda", 3, kMessage, kCuda},
                                          {"execution_accelerators", 4, kMessage, kAccelerators},
                                          {"input_pinned_memory", 5, kMessage, kPinnedMemory},
                                          {"output_pinned_memory", 6, kMessage, kPinnedMemory},
                                          {"gather_kernel_buffer_threshold", 7, kInteger},
                                          {"eager_batching", 8, kFlag},
                                          {}};
constexpr MessageField kControl[] = {{"kind", 1, kChoice},          {"int32_false_true", 2, kInteger},
                                     {"fp32_false_true", 3, kReal}, {"data_type", 4, kChoice},
                                     {"bool_false_true", 5, kFlag}, {}};
constexpr MessageField kControlInput[] = {{"name", 1}, {"control", 2, kMessage, kControl}, {}};
constexpr MessageField kDirect[] = {
    {"max_queue_delay_microseconds", 1, kInteger}, {"minimum_slot_utilization", 2, kReal}, {}};
constexpr MessageField kOldest[] = {{"max_candidate_sequences", 1, kInteger},
                                    {"preferred_batch_size", 2, kInteger},
                                    {"max_queue_delay_microseconds", 3, kInteger},
                                    {"preserve_ordering", 4, kFlag},
                                    {}};
constexpr MessageField kInitialState[] = {{"data_type", 1, kChoice}, {"dims", 2, kInteger}, {"zero_data", 3, kFlag},
                                          {"data_file", 4},          {"name", 5},           {}};
constexpr MessageField kState[] = {{"input_name", 1},
                                   {"output_name", 2},
                                   {"data_type", 3, kChoice},
                                   {"dims", 4, kInteger},
                                   {"initial_state", 5, kMessage, kInitialState},
                                   {"use_same_buffer_for_input_output", 6, kFlag},
                                   {"use_growable_memory", 7, kFlag},
                                   {}};
constexpr MessageField kSequence[] = {{"max_sequence_idle_microseconds", 1, kInteger},
                                      {"control_input", 2, kMessage, kControlInput},
                                      {"direct", 3, kMessage, kDirect},
                                      {"oldest", 4, kMessage, kOldest},
                                      {"state", 5, kMessage, kState},
                                      {"iterative_sequence", 6, kFlag},
                                      {}};
constexpr MessageField kTextParameter[] = {{"string_value", 1}, {}};
constexpr MessageField kStep[] = {{"model_name", 1},       {"model_version", 2, kInteger}, {"input_map", 3, kMap},
                                  {"output_map", 4, kMap}, {"model_namespace", 5},         {}};
constexpr MessageField kEnsembling[] = {{"step", 1, kMessage, kStep}, {"max_inflight_requests", 2, kInteger}, {}};
constexpr MessageField kWarmupInput[] = {{"data_type", 1, kChoice}, {"dims", 2, kInteger},  {"zero_data", 3, kFlag},
                                         {"random_data", 4, kFlag}, {"input_data_file", 5}, {}};
constexpr MessageField kWarmup[] = {
    {"name", 1}, {"batch_size", 2, kInteger}, {"inputs", 3, kMap, kWarmupInput}, {"count", 4, kInteger}, {}};
constexpr MessageField kOperations[] = {{"op_library_filename", 1}, {}};
constexpr MessageField kTransactionPolicy[] = {{"decoupled", 1, kFlag}, {}};
constexpr MessageField kBatchInput[] = {
    {"kind", 1, kChoice}, {"target_name", 2}, {"data_type", 3, kChoice}, {"source_input", 4}, {}};
constexpr MessageField kBatchOutput[] = {{"target_name", 1}, {"kind", 2, kChoice}, {"source_input", 3}, {}};
constexpr MessageField kAgent[] = {{"name", 1}, {"parameters", 2, kMap}, {}};
constexpr MessageField kAgents[] = {{"agents", 1, kMessage, kAgent}, {}};
constexpr MessageField kResponseCache[] = {{"enable", 1, kFlag}, {}};
constexpr MessageField kMetricIdentifier[] = {{"family", 1}, {}};
constexpr MessageField kHistogramOptions[] = {{"buckets", 1, kNumber}, {}};
constexpr MessageField kMetricControl[] = {
    {"metric_identifier", 1, kMessage, kMetricIdentifier}, {"histogram_options", 2, kMessage, kHistogramOptions}, {}};
constexpr MessageField kMetrics[] = {{"metric_control", 1, kMessage, kMetricControl}, {}};
constexpr MessageField kDuration[] = {{"count", 1, kInteger}, {"ns", 2, kInteger}, {}};
constexpr MessageField kInferStatistics[] = {{"success", 1, kMessage, kDuration},
                                             {"fail", 2, kMessage, kDuration},
                                             {"queue", 3, kMessage, kDuration},
                                             {"compute_input", 4, kMessage, kDuration},
                                             {"compute_infer", 5, kMessage, kDuration},
                                             {"compute_output", 6, kMessage, kDuration},
                                             {"cache_hit", 7, kMessage, kDuration},
                                             {"cache_miss", 8, kMessage, kDuration},
                                             {}};
constexpr MessageField kBatchStatistics[] = {{"batch_size", 1, kInteger},
                                             {"compute_input", 2, kMessage, kDuration},
                                             {"compute_infer", 3, kMessage, kDuration},
                                             {"compute_output", 4, kMessage, kDuration},
                                             {}};
constexpr MessageField kMemoryUsage[] = {{"type", 1}, {"id", 2, kInteger}, {"byte_size", 3, kInteger}, {}};
constexpr MessageField kResponseStatistics[] = {{"compute_infer", 1, kMessage, kDuration},
                                                {"compute_output", 2, kMessage, kDuration},
                                                {"success", 3, kMessage, kDuration},
                                                {"fail", 4, kMessage, kDuration},
                                                {"empty_response", 5, kMessage, kDuration},
                                                {"cancel", 6, kMessage, kDuration},
                                                {}};
constexpr MessageField kModelStatistics[] = {{"name", 1},
                                             {"version", 2},
                                             {"last_inference", 3, kInteger},
                                             {"inference_count", 4, kInteger},
                                             {"execution_count", 5, kInteger},
                                             {"inference_stats", 6, kMessage, kInferStatistics},
                                             {"batch_stats", 7, kMessage, kBatchStatistics},
                                             {"memory_usage", 8, kMessage, kMemoryUsage},
                                             {"response_stats", 9, kMap, kResponseStatistics},
                                             {}};

// No two enumerations have a name in common.
struct Choice {
  std::string_view name;
  unsigned number;
};
constexpr Choice kChoices[] = {
    {"TYPE_INVALID", 0},
    {"TYPE_BOOL", 1},
    {"TYPE_UINT8", 2},
    {"TYPE_UINT16", 3},
    {"TYPE_UINT32", 4},
    {"TYPE_UINT64", 5},
    {"TYPE_INT8", 6},
    {"TYPE_INT16", 7},
    {"TYPE_INT32", 8},
    {"TYPE_INT64", 9},
    {"TYPE_FP16", 10},
    {"TYPE_FP32", 11},
    {"TYPE_FP64", 12},
    {"TYPE_STRING", 13},
    {"TYPE_BF16", 14},
    {"KIND_AUTO", 0},
    {"KIND_GPU", 1},
    {"KIND_CPU", 2},
    {"KIND_MODEL", 3},
    {"KIND_NVDLA", 0},
    {"FORMAT_NONE", 0},
    {"FORMAT_NHWC", 1},
    {"FORMAT_NCHW", 2},
    {"BATCH_ELEMENT_COUNT", 0},
    {"BATCH_ACCUMULATED_ELEMENT_COUNT", 1},
    {"BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO", 2},
    {"BATCH_MAX_ELEMENT_COUNT_AS_SHAPE", 3},
    {"BATCH_ITEM_SHAPE", 4},
    {"BATCH_ITEM_SHAPE_FLATTEN", 5},
    {"BATCH_SCATTER_WITH_INPUT_SHAPE", 0},
    {"PRIORITY_DEFAULT", 0},
    {"PRIORITY_MAX", 1},
    {"PRIORITY_MIN", 2},
    {"REJECT", 0},
    {"DELAY", 1},
    {"CONTROL_SEQUENCE_START", 0},
    {"CONTROL_SEQUENCE_READY", 1},
    {"CONTROL_SEQUENCE_END", 2},
    {"CONTROL_SEQUENCE_CORRID", 3},
};

}  // namespace

const MessageField kServerMetadata[] = {{"name", 1}, {"version", 2}, {"extensions", 3}, {}};
const MessageField kModelMetadata[] = {{"name", 1},
                                       {"versions", 2},
                                       {"platform", 3},
                                       {"inputs", 4, kMessage, kTensorMetadata},
                                       {"outputs", 5, kMessage, kTensorMetadata},
                                       {}};
const MessageField kModelConfig[] = {{"name", 1},
                                     {"platform", 2},
                                     {"version_policy", 3, kMessage, kVersionPolicy},
                                     {"max_batch_size", 4, kInteger},
                                     {"input", 5, kMessage, kInput},
                                     {"output", 6, kMessage, kOutput},
                                     {"instance_group", 7, kMessage, kInstance},
                                     {"default_model_filename", 8},
                                     {"cc_model_filenames", 9, kMap},
                                     {"metric_tags", 10, kMap},
                                     {"dynamic_batching", 11, kMessage, kDynamicBatching},
                                     {"optimization", 12, kMessage, kOptimization},
                                     {"sequence_batching", 13, kMessage, kSequence},
                                     {"parameters", 14, kMap, kTextParameter},
                                     {"ensemble_scheduling", 15, kMessage, kEnsembling},
                                     {"model_warmup", 16, kMessage, kWarmup},
                                     {"backend", 17},
                                     {"model_operations", 18, kMessage, kOperations},
                                     {"model_transaction_policy", 19, kMessage, kTransactionPolicy},
                                     {"batch_input", 20, kMessage, kBatchInput},
                                     {"batch_output", 21, kMessage, kBatchOutput},
                                     {"model_repository_agents", 23, kMessage, kAgents},
                                     {"response_cache", 24, kMessage, kResponseCache},
                                     {"runtime", 25},
                                     {"model_metrics", 26, kMessage, kMetrics},
                                     {}};
const MessageField kStatistics[] = {{"model_stats", 1, kMessage, kModelStatistics}, {}};
const MessageField kIndexEntry[] = {{"name", 1}, {"version", 2}, {"state", 3}, {"reason", 4}, {}};

unsigned number_of_choice(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kChoices), std::end(kChoices), [&](const Choice& each) { return each.name == name; });
  return found == std::end(kChoices) ? 0 : found->number;
}

}  // namespace pytriton::http
