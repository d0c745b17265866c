// Compressed bodies of requests.
#pragma once

#include <string_view>

#include "buffer.h"

namespace pytriton::http {

enum class Inflated { complete, broken, has_more, too_long, no_library };

// The content of gzip or zlib's format, in a buffer. `has_more`: bytes follow that are no part of it.
Inflated inflate(std::string_view data, uint64_t most_bytes, uint64_t most_buffered, Buffer& to, size_t& size);

}  // namespace pytriton::http
