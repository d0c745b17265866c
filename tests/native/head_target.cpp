// Bytes of a connection: however they are cut, they are the same requests, and nothing beyond them is read. The same
// for answers of a process behind. The first byte says how they are cut.
#include <cstring>
#include <string>
#include <vector>

#include "edge/answer_coding.h"
#include "edge/buffer.h"
#include "edge/request_parser.h"
#include "edge/response_parser.h"
#include "kserve/v2_path.h"
#include "target.h"

namespace {

using namespace pytriton::http;

void require_same(bool condition) {
  if (!condition) __builtin_trap();
}

constexpr Limits kLimits{512, 16, 1024};

// What is forwarded of a path can be in a request line, and is the same path again.
void check_path(const Request& request) {
  const V2Path path = parse_v2_path(request.path);
  require_same(path.target.model.find('\0') == std::string::npos && path.region.find('\0') == std::string::npos);
  require_same(path.action != Action::none || !allows(path.action, "POST"));
  static_cast<void>(coding_of(request));
  const auto target = path.action == Action::none ? std::nullopt : server_target(path);
  if (!target) return;
  require_same(target->find_first_of(std::string_view(" %?#\r\n\0", 7)) == std::string::npos);
  const V2Path again = parse_v2_path(*target);
  const bool is_forwarded = !is_metadata(path.action);
  require_same(!is_forwarded || (again.action == path.action && again.target.model == path.target.model &&
                                 again.target.version == path.target.version && again.region == path.region));
}

// What is read of the bytes: a line for each request, and the status of the one that is refused.
std::vector<std::string> requests(std::string_view bytes, size_t piece) {
  std::vector<std::string> found;
  RequestParser parser(kLimits);
  Buffer buffer;
  size_t size = 0;
  while (true) {
    size_t given = std::min(piece, bytes.size());
    require_same(buffer.reserve(std::max(size + given, size + 1)));
    std::memcpy(buffer.data() + size, bytes.data(), given);
    bytes.remove_prefix(given);
    size += given;
    auto progress = parser.parse(buffer.data(), size);
    while (progress == RequestParser::Progress::complete) {
      require_same(parser.end() <= size);
      Request request;
      parser.fill(request, buffer.data());
      std::string line;
      for (const std::string_view part : {request.method, request.target, request.path, request.query, request.body})
        line.append(part) += '\n';
      check_path(request);
      for (const Header& header : request.headers) (line.append(header.name) += '=').append(header.value) += '\n';
      require_same(request.body.size() <= kLimits.max_body_bytes && request.headers.size() <= kLimits.max_headers);
      require_same(request.target.find_first_of(std::string_view(" \r\n\0", 4)) == std::string_view::npos);
      for (const Header& header : request.headers)
        require_same(header.value.find_first_of(std::string_view("\r\n\0", 3)) == std::string_view::npos);
      found.push_back(std::move(line));
      const size_t end = parser.end();
      std::memmove(buffer.data(), buffer.data() + end, size - end);
      size -= end;
      parser.reset();
      if (size == 0) break;
      progress = parser.parse(buffer.data(), size);
    }
    if (progress == RequestParser::Progress::failed) {
      require_same(parser.status() >= 400 && parser.status() <= 505);
      found.emplace_back("refused");
      return found;
    }
    if (bytes.empty()) return found;
  }
}

std::string answer(std::string_view bytes, size_t piece) {
  ResponseParser parser(false);
  while (!bytes.empty() && !parser.is_complete()) {
    const std::string_view given = bytes.substr(0, piece);
    const std::string copy(given);  // so that a sanitizer sees its end
    if (!parser.parse(copy.data(), copy.size())) return "refused";
    bytes.remove_prefix(given.size());
  }
  if (!parser.finish()) return "broken";
  return std::to_string(parser.status()) + parser.headers() + parser.body;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t piece = data[0] / 2 + 1U;
  if (data[0] % 2) {
    require_same(answer(bytes, bytes.size()) == answer(bytes, piece));
  } else {
    require_same(requests(bytes, bytes.size()) == requests(bytes, piece));
  }
  return 0;
}
