// The paths below /v2: what each asks for, of which model or region. A path that is not one of these is not served.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pytriton::http {

// Where a request goes: /v2/models/{model}[/versions/{version}]/{action}, or /predict/{model}[/{version}].
struct Target {
  std::string model;
  int64_t version = -1;
  // Of content with binary data, up to the size of its JSON; empty: a header has that.
  std::string_view binary_type{};  // NOLINT(readability-redundant-member-init): GCC warns where it is left out
};

enum class Action {
  none,
  metadata,
  live,
  ready,
  model,
  model_ready,
  config,
  statistics,
  infer,
  generate,
  generate_stream,
  trace,
  logging,
  index,
  load,
  unload,
  memory_status,
  memory_register,
  memory_unregister
};

struct V2Path {
  Action action = Action::none;
  Target target;                // without a model: of the server, or of all models
  std::string region;           // of shared memory; empty: all
  bool is_cuda = false;         // whose shared memory
  bool has_repository = false;  // a repository is named
};

// Names are decoded. A version that is no number of at most 18 digits, or a name that cannot be one, is no path.
V2Path parse_v2_path(std::string_view path);

// The path written anew, for the server's own endpoint, which takes names as they are in it; nothing if a name has
// characters that no path has.
std::optional<std::string> server_target(const V2Path& path);

// The group of endpoints that it belongs to, in the words of --http-restricted-api; empty for none.
std::string_view group_of(Action action);

bool is_inference(Action action);
bool is_metadata(Action action);  // what is said of the server and its models
bool is_shared_memory(Action action);

// Whether an action may be asked for by a method.
bool allows(Action action, std::string_view method);

// Numbers of at most 18 digits.
bool is_number(std::string_view text);
int64_t number_of(std::string_view text);

// The text before the next slash, which is removed with it.
std::string_view take_segment(std::string_view& path);
bool take_prefix(std::string_view& text, std::string_view prefix);

}  // namespace pytriton::http
