// What a fuzzer calls; libFuzzer and AFL++ know it by this name. Returns, unless a sanitizer or the server's rules tell
// of a fault.
//
// frame_target.cpp: the first byte says how the rest, a frame, arrives: if odd, in the worker's arena, as frames do
// that are too long for the socket. Half of it is a number of strings that a client may have sent as the same bytes.
// Ends in right responses or in an error of the batch. json_target.cpp: the bytes are a text of JSON.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
