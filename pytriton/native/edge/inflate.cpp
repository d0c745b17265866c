#include "inflate.h"

#include <algorithm>
#include <climits>

#include "zlib.h"

namespace pytriton::http {

namespace {

constexpr size_t kFirstContentRoom = 64 << 10;
constexpr size_t kStepBytes = 512 << 10;

}  // namespace

struct Inflater::State {
  State() {
    is_open = zlib && zlib->inflate_init(&stream, Zlib::kWindowBits + Zlib::kAnyFormat, Zlib::kVersion,
                                         sizeof stream) == Zlib::kOk;
  }
  ~State() {
    if (is_open) zlib->inflate_end(&stream);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const Zlib* const zlib = Zlib::get();
  ZlibStream stream{};
  bool is_open = false;
};

Inflater::Inflater(Caller& caller, std::string_view data, uint64_t most_bytes)
    : caller_(caller), data_(data), most_bytes_(most_bytes), state_(std::make_unique<State>()) {}

Inflater::~Inflater() = default;

bool Inflater::make_room() {
  const auto most = static_cast<size_t>(std::max<uint64_t>(most_bytes_ + 1, kFirstContentRoom));
  const size_t capacity = std::min(std::max(kFirstContentRoom, 2 * size), most);
  return caller_.reserve(capacity, charge) && content->reserve(capacity);
}

Inflated Inflater::step() {
  if (!state_->is_open) return Inflated::no_library;
  ZlibStream& stream = state_->stream;
  const size_t target = size + kStepBytes;
  while (size < target) {
    if (size > most_bytes_) return Inflated::too_long;
    if (size == content->capacity() && !make_room()) return Inflated::no_memory;
    const auto given = static_cast<unsigned>(std::min<size_t>(data_.size(), UINT_MAX));
    const auto room = static_cast<unsigned>(std::min(content->capacity() - size, target - size));
    stream.next_in = data_.data();
    stream.available_in = given;
    stream.next_out = content->data() + size;
    stream.available_out = room;
    const int result = state_->zlib->inflate(&stream, Zlib::kNoFlush);
    data_.remove_prefix(given - stream.available_in);
    size += room - stream.available_out;
    if (result == Zlib::kStreamEnd) {
      if (size > most_bytes_) return Inflated::too_long;
      return data_.empty() ? Inflated::complete : Inflated::has_more;
    }
    const bool is_stuck = result == Zlib::kBufferError || (data_.empty() && stream.available_out > 0);
    if ((result != Zlib::kOk && result != Zlib::kBufferError) || is_stuck) return Inflated::broken;
  }
  return Inflated::unfinished;
}

}  // namespace pytriton::http
