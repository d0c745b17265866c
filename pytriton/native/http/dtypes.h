// Dtypes by the server's codes.
#pragma once

#include <cstddef>

#include "../tensors.h"
#include "../triton.h"

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

}  // namespace pytriton::http
