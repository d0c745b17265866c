#include "cloud.h"

namespace pytriton::http {

namespace {

constexpr std::string_view kVertexAi = "application/vnd.vertex-ai-triton.binary+json;json-header-size=";
constexpr std::string_view kSageMaker = "application/vnd.sagemaker-triton.binary+json;json-header-size=";

V2Path health() {
  V2Path path;
  path.action = Action::ready;
  return path;
}

V2Path prediction(const std::string& model, std::string_view binary_type) {
  V2Path path;
  path.action = Action::infer;
  path.target.model = model;
  path.target.binary_type = binary_type;
  return path;
}

// Vertex AI has one path. A header may name another one, which is asked for its token there too.
V2Path vertex_ai(const CloudOptions& options, const Request& request) {
  if (request.path == options.health_route) return health();
  if (request.path != options.predict_route) return {};
  const std::string_view redirect = request.header("x-vertex-ai-triton-redirect");
  if (redirect.empty()) return prediction(options.model, kVertexAi);
  return parse_v2_path((redirect.front() == '/' ? "" : "/") + std::string(redirect));
}

V2Path sagemaker(const CloudOptions& options, const Request& request) {
  if (request.path == "/ping") return health();
  if (request.path == "/invocations") return prediction(options.model, kSageMaker);
  return {};
}

}  // namespace

V2Path asked_path(const Config& config, Entrance entrance, const Request& request) {
  switch (entrance) {
    case Entrance::vertex_ai:
      return vertex_ai(config.vertex_ai, request);
    case Entrance::sagemaker:
      return sagemaker(config.sagemaker, request);
    default:
      return parse_v2_path(request.path);
  }
}

}  // namespace pytriton::http
