// What goes wrong. Exceptions stay within the library; backend.cpp turns them into the server's errors.
#pragma once

#include <stdexcept>
#include <string>

namespace pytriton {

// Between a callable's message and what it says beside it, as JSON, where only a message gets through
// (pytriton/wire/frames.py).
constexpr const char *kDetailsSeparator = " | ", *kDetailsMark = " | {\"details\":";

// Codes are those of TRITONSERVER_Error_Code.
enum class Code : int {
  unknown,
  internal,
  not_found,
  invalid_argument,
  unavailable,
  unsupported,
  already_exists,
  cancelled
};

struct Failure : std::runtime_error {
  Failure(Code code, const std::string& message) : std::runtime_error(message), code(code) {}
  Code code;
};

// The worker closed the connection or died.
struct PeerGone : Failure {
  explicit PeerGone(const std::string& message) : Failure(Code::unavailable, message) {}
};

// It died before it had read what was sent last: the kernel tells, because that was still in its socket.
struct Unread : PeerGone {
  using PeerGone::PeerGone;
};

// A frame's bytes contradict themselves; the connection that sent it cannot be trusted further.
struct FrameError : Failure {
  explicit FrameError(const std::string& message) : Failure(Code::internal, "FrameError: " + message) {}
};

// A batch does not fit into the arena.
struct ArenaFull : Failure {
  explicit ArenaFull(const std::string& message) : Failure(Code::internal, message) {}
};

// What a client sent cannot travel; requests merged with its own shall not suffer from it.
struct BadRequest : Failure {
  using Failure::Failure;
};

}  // namespace pytriton
