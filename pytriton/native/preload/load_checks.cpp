#include "load_checks.h"

#include <algorithm>

#include "../frames/failure.h"
#include "../frames/json.h"

namespace pytriton {
namespace {

// Of the kernel, for one name; and half of its bound for a path, since the folder comes before it. The server ends when
// the kernel refuses a path as too long.
constexpr size_t kMostNameBytes = 255, kMostPathBytes = 2048, kMostShown = 64;
constexpr std::string_view kFile = "file:";
// Members of a configuration that are paths, in both spellings that the server reads.
constexpr std::string_view kPaths[] = {
    "label_filename", "labelFilename",          "data_file",           "dataFile", "input_data_file",
    "inputDataFile",  "default_model_filename", "defaultModelFilename"};

std::string quoted(std::string_view name) {
  std::string text = "'";
  for (const char letter : name.substr(0, kMostShown)) {
    const auto byte = static_cast<unsigned char>(letter);
    text += byte < ' ' || byte > '~' ? '?' : letter;
  }
  return text + (name.size() > kMostShown ? "...'" : "'");
}

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kMostNameBytes && name != "." && name != "..";
}

bool is_path(std::string_view path) {
  if (path.size() > kMostPathBytes) return false;
  for (size_t start = 0;;) {
    const size_t end = std::min(path.find('/', start), path.size());
    if (!is_name(path.substr(start, end - start))) return false;
    if (end == path.size()) return true;
    start = end + 1;
  }
}

std::string find_wrong_path(const Json& value) {
  if (value.is(Json::Kind::list))
    for (const Json& each : value.list())
      if (std::string found = find_wrong_path(each); !found.empty()) return found;
  if (!value.is(Json::Kind::object)) return {};
  for (const auto& [name, each] : value.object()) {
    const bool is_checked = std::find(std::begin(kPaths), std::end(kPaths), name) != std::end(kPaths);
    if (is_checked && each.is(Json::Kind::text) && !each.text().empty() && !is_path(each.text()))
      return name + " " + quoted(each.text()) + " of the configuration has to be a path within the model's folder";
    if (std::string found = find_wrong_path(each); !found.empty()) return found;
  }
  return {};
}

}  // namespace

std::string wrong_model_name(std::string_view name) {
  if (is_name(name) && name.find('/') == std::string_view::npos) return {};
  return "the name of a model has 1 to 255 bytes, no '/', and is not '.' or '..'; got " + quoted(name);
}

std::string wrong_file_name(std::string_view parameter) {
  if (parameter.substr(0, kFile.size()) != kFile || is_path(parameter.substr(kFile.size()))) return {};
  return "a file of a model is named 'file:<path>' by a path within the model's folder, without '..', of names of at "
         "most 255 bytes, and of at most 2048 bytes in all; got " +
         quoted(parameter);
}

std::string wrong_paths(std::string_view config) {
  try {
    return find_wrong_path(Json::parse(config));
  } catch (const FrameError&) {
    return {};  // no JSON, which the server refuses
  }
}

}  // namespace pytriton
