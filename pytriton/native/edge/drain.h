// What is done when the edge begins to drain, beside its own work.
#pragma once

#include <functional>

namespace pytriton::http {

// Has `hook` called at each beginning. Hooks stay; they must not throw.
void on_drain(std::function<void()> hook);

void call_drain_hooks();  // by the edge

}  // namespace pytriton::http
