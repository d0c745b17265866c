// Work that would keep a loop from other connections: it is done by other threads, in turns.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

namespace pytriton::http {

constexpr size_t kLargeJson = 256 << 10;  // bytes of JSON that take about a millisecond to read

// Runs a task that reads so many bytes of JSON. Clients of each address have their turns; tasks of few bytes do not
// wait for those of many. Tasks must not throw.
void run_in_background(std::string_view address, size_t bytes, std::function<void()> task);

// Runs a task that waits for the server, or reads what is no JSON.
void run_waiting(std::string_view address, std::function<void()> task);

// Runs a task that loads or unloads a model, which may take minutes.
void run_loading(std::string_view address, std::function<void()> task);

// Calls `step`, which works for about a millisecond, again and again until it returns false. Other work has its turns
// in between.
void run_in_steps(std::string_view address, std::function<bool()> step);

}  // namespace pytriton::http
