#include "request.h"

#include <ctime>
#include <utility>

namespace pytriton {

uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

Request::Request(TRITONBACKEND_Request* request, TRITONBACKEND_ModelInstance* instance, bool needs_factory) noexcept
    : request_(request), instance_(instance) {
  TRITONBACKEND_ResponseFactory* factory = nullptr;
  if (needs_factory && ignore(TRITONBACKEND_ResponseFactoryNew(&factory, request))) factory_.reset(factory);
}

Request::~Request() {
  if (!done_) {
    fail(Code::internal, "the request was left without an answer");
    count(Times());
    send(true);
  }
  response_.reset();
  factory_.reset();
  ignore(TRITONBACKEND_RequestRelease(request_, TRITONSERVER_REQUEST_RELEASE_ALL));
}

bool Request::is_cancelled() const {
  bool cancelled = false;
  if (factory_) return ignore(TRITONBACKEND_ResponseFactoryIsCancelled(factory_.get(), &cancelled)) && cancelled;
  return ignore(TRITONBACKEND_RequestIsCancelled(request_, &cancelled)) && cancelled;
}

bool Request::wants(const Output& output, size_t outputs) const {
  uint32_t wanted = 0;
  check(TRITONBACKEND_RequestOutputCount(request_, &wanted));
  if (wanted == outputs) return true;
  for (uint32_t index = 0; index < wanted; ++index) {
    const char* name = nullptr;
    check(TRITONBACKEND_RequestOutputName(request_, index, &name));
    if (output.name == name) return true;
  }
  return false;
}

void Request::begin() {
  error_.reset();
  failed_ = false;
  TRITONBACKEND_Response* response = nullptr;
  check(factory_ ? TRITONBACKEND_ResponseNewFromFactory(&response, factory_.get())
                 : TRITONBACKEND_ResponseNew(&response, request_));
  response_.reset(response);
}

char* Request::add(const Output& output, const int64_t* shape, uint32_t rank, uint64_t size) {
  TRITONBACKEND_Output* added = nullptr;
  void* buffer = nullptr;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  int64_t device = 0;
  check(TRITONBACKEND_ResponseOutput(response_.get(), &added, output.name.c_str(),
                                     static_cast<TRITONSERVER_DataType>(output.dtype), shape, rank));
  check(TRITONBACKEND_OutputBuffer(added, &buffer, size, &memory, &device));
  if (memory == TRITONSERVER_MEMORY_GPU) {
    throw Failure(Code::unsupported, "output '" + output.name +
                                         "' is wanted in GPU memory, which the native proxy cannot write; bind the "
                                         "model with proxy=\"python\"");
  }
  return static_cast<char*>(buffer);
}

void Request::fail(Code code, const std::string& message) noexcept {
  failed_ = true;
  error_.reset(TRITONSERVER_ErrorNew(static_cast<TRITONSERVER_Error_Code>(code), message.c_str()));
}

void Request::send(bool last) noexcept {
  if (done_) return;
  last = last || failed_;
  if (!response_) {
    try {
      const ErrorPointer error = std::move(error_);
      begin();
      failed_ = error != nullptr;
      error_ = ErrorPointer(
          error ? TRITONSERVER_ErrorNew(TRITONSERVER_ErrorCode(error.get()), TRITONSERVER_ErrorMessage(error.get()))
                : nullptr);
    } catch (const std::exception& failure) {
      log_warning(std::string("a response could not be made: ") + failure.what());
      done_ = last;
      return;
    }
  }
  done_ = last;
  const uint32_t flags = last ? TRITONSERVER_RESPONSE_COMPLETE_FINAL : 0;
  const ErrorPointer refusal(TRITONBACKEND_ResponseSend(response_.release(), flags, error_.get()));
  error_.reset();
  if (!refusal) return;
  done_ = true;
  log_warning(std::string("a response could not be sent: ") + TRITONSERVER_ErrorMessage(refusal.get()));
}

void Request::stop() noexcept {
  if (done_) return;
  response_.reset();
  done_ = stopped_ = true;
}

void Request::end() noexcept {
  stop();
  if (!std::exchange(stopped_, false)) return;
  if (factory_) ignore(TRITONBACKEND_ResponseFactorySendFlags(factory_.get(), TRITONSERVER_RESPONSE_COMPLETE_FINAL));
}

void Request::count(const Times& times) noexcept {
  if (counted_) return;
  counted_ = true;
  const uint64_t end = now_ns();
  const uint64_t compute_start = times.compute_start ? times.compute_start : times.start;
  const uint64_t compute_end = times.compute_end ? times.compute_end : compute_start;
  ignore(TRITONBACKEND_ModelInstanceReportStatistics(instance_, request_, !failed_, times.start, compute_start,
                                                     compute_end, end));
}

void finish(const Requests& requests, const Times& times) {
  for (const auto& request : requests) request->count(times);
  for (const auto& request : requests) request->send(true);
}

void fail(const Requests& requests, const Times& times, Code code, const std::string& message) {
  for (const auto& request : requests) request->fail(code, message);
  finish(requests, times);
}

}  // namespace pytriton
