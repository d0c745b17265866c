// Compressed messages of answers, as grpc_infer_response_compression_level and grpc-accept-encoding say.
#pragma once

#include <memory>
#include <string_view>

#include "../edge/account.h"
#include "../edge/deflate.h"
#include "grpc_message.h"

namespace pytriton::http {

// Codings of a client's grpc-accept-encoding.
struct AcceptedCodings {
  bool gzip = false, deflate = false;

  void add(std::string_view list);
  Coding best(std::string_view level) const;  // "none", "low", "medium" or "high", as gRPC's libraries choose
};

// Compresses a message in steps. Leaves it as it is if that is not shorter, or there is no zlib, or no memory.
class MessageCompression {
 public:
  MessageCompression(MessagePointer message, Coding coding, const std::shared_ptr<Share>& share);

  bool step();  // false: it is done

 private:
  const MessagePointer message_;
  Charge charge_;
  const bool has_room_;
  Deflater deflater_;
};

}  // namespace pytriton::http
