// Threads for work that would keep the loop from other connections.
#pragma once

#include <cstddef>
#include <functional>

namespace pytriton::http {

constexpr size_t kLargeJson = 256 << 10;  // bytes of JSON that take about a millisecond to read

// Runs a task on one of a few threads, which are started when they are needed. Tasks must not throw.
void run_in_background(std::function<void()> task);

}  // namespace pytriton::http
