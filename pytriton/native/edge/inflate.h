// Compressed bodies of requests.
#pragma once

#include <memory>
#include <string_view>

#include "buffer.h"
#include "exchange.h"

namespace pytriton::http {

enum class Inflated { unfinished, complete, broken, has_more, too_long, no_memory, no_library };

// Takes the content out of gzip's or zlib's format, in steps. Its memory is reserved with the caller before it is
// taken.
class Inflater {
 public:
  Inflater(Caller& caller, std::string_view data, uint64_t most_bytes);
  ~Inflater();
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // Inflates about a millisecond's worth. `has_more`: bytes follow that are no part of it.
  Inflated step();

  // Of the complete content
  std::shared_ptr<Buffer> content = std::make_shared<Buffer>();
  size_t size = 0;
  Charge charge;

 private:
  struct State;
  bool make_room();

  Caller& caller_;
  std::string_view data_;
  const uint64_t most_bytes_;
  const std::unique_ptr<State> state_;
};

}  // namespace pytriton::http
