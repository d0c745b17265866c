// What a fuzzer calls; libFuzzer and AFL++ know it by this name.
#pragma once

#include <cstddef>
#include <cstdint>

// The first byte says how the rest, a frame, arrives: if odd, in the worker's arena, as frames do that are too long for
// the socket. Half of it is a number of strings that a client may have sent as the same bytes. Ends in right responses
// or in an error of the batch; a sanitizer or the server's rules tell what is neither.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
