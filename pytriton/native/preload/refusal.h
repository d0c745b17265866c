// What the preloaded library writes over the beginning of a compressed body that it refuses.
#pragma once

#include <array>

namespace pytriton {

// No JSON begins with it, and no tensor by chance: each server has another one.
using RefusedBody = std::array<unsigned char, 16>;
const RefusedBody& refused_body();

}  // namespace pytriton
