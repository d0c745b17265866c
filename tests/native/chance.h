// Random numbers that a seed gives again.
#pragma once

#include <cstdint>
#include <random>

using Random = std::mt19937_64;

inline uint64_t up_to(Random& random, uint64_t most) {
  return std::uniform_int_distribution<uint64_t>(0, most)(random);
}
