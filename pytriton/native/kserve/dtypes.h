// Dtypes by the server's codes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../frames/tensors.h"
#include "../frames/triton.h"

namespace pytriton::http {

namespace dtype {
constexpr auto kBool = TRITONSERVER_DataType{1}, kUint8 = TRITONSERVER_DataType{2}, kUint16 = TRITONSERVER_DataType{3},
               kUint32 = TRITONSERVER_DataType{4}, kUint64 = TRITONSERVER_DataType{5}, kInt8 = TRITONSERVER_DataType{6},
               kInt16 = TRITONSERVER_DataType{7}, kInt32 = TRITONSERVER_DataType{8}, kInt64 = TRITONSERVER_DataType{9},
               kFp16 = TRITONSERVER_DataType{10}, kFp32 = TRITONSERVER_DataType{11}, kFp64 = TRITONSERVER_DataType{12},
               kBytes = TRITONSERVER_DataType{13}, kBf16 = TRITONSERVER_DataType{14};
}  // namespace dtype

constexpr size_t kLengthBytes = 4;  // before each string of a BYTES tensor, in little endian

// Bytes of an element; 0 for BYTES and what is no dtype.
inline size_t bytes_of(TRITONSERVER_DataType type) {
  return type == dtype::kBf16 ? 2 : item_size(static_cast<uint8_t>(type));
}

// Calls `visit` with a value of the type that a dtype's elements have. False, without a call, for those that have none:
// strings, and numbers of 16 bits that are no integers.
template <typename Visit>
bool visit_dtype(TRITONSERVER_DataType type, const Visit& visit) {
  const auto call = [&visit](auto item) {
    visit(item);
    return true;
  };
  switch (type) {
    case dtype::kBool:
      return call(bool{});
    case dtype::kUint8:
      return call(uint8_t{});
    case dtype::kUint16:
      return call(uint16_t{});
    case dtype::kUint32:
      return call(uint32_t{});
    case dtype::kUint64:
      return call(uint64_t{});
    case dtype::kInt8:
      return call(int8_t{});
    case dtype::kInt16:
      return call(int16_t{});
    case dtype::kInt32:
      return call(int32_t{});
    case dtype::kInt64:
      return call(int64_t{});
    case dtype::kFp32:
      return call(float{});
    case dtype::kFp64:
      return call(double{});
    default:
      return false;
  }
}

}  // namespace pytriton::http
