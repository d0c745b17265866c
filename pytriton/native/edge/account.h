// Memory that requests take, in all and of the clients of one address: reserved before it is spent, and given back when
// it is free.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

namespace pytriton::http {

class Account;

// Of an IPv6 address its network of 64 bits, such as 2001:db8::/64, since whoever has one address usually has all of
// that; else the address.
std::string network_of(const std::string& address);

// Why there is no memory: the clients of the address have their share, or all clients together have all.
enum class Refusal { none, share, all };

// What the clients of one address take.
class Share {
 public:
  Share(std::shared_ptr<Account> account, std::string key, uint64_t most);
  ~Share();
  Share(const Share&) = delete;
  Share& operator=(const Share&) = delete;

  Refusal take(uint64_t bytes);
  void force(uint64_t bytes);  // beyond what is allowed
  void give_back(uint64_t bytes);

 private:
  const std::shared_ptr<Account> account_;
  const std::string key_;
  const uint64_t most_;
  std::atomic<uint64_t> used_{0};
};

class Account : public std::enable_shared_from_this<Account> {
 public:
  // The most bytes in all, and those of one address: 0 is half of all.
  Account(uint64_t most, uint64_t most_of_address) : most_(most), most_of_address_(most_of_address) {}

  // The share of an address's network. Clients without one, which come by Unix sockets, may have all.
  std::shared_ptr<Share> share_of(const std::string& address);

  uint64_t used() const { return used_.load(std::memory_order_relaxed); }
  uint64_t most() const { return most_; }

 private:
  friend class Share;
  void trim();

  const uint64_t most_, most_of_address_;
  std::atomic<uint64_t> used_{0};
  std::atomic<int64_t> trimmed_at_{0};
  std::mutex mutex_;                                              // of the following
  std::unordered_map<std::string, std::weak_ptr<Share>> shares_;  // of addresses that have connections or requests
};

// Some bytes of a share, which go back to it with this object.
class Charge {
 public:
  Charge() = default;
  explicit Charge(std::shared_ptr<Share> share) : share_(std::move(share)) {}
  Charge(Charge&& other) noexcept : share_(std::move(other.share_)), bytes_(std::exchange(other.bytes_, 0)) {}
  Charge& operator=(Charge&& other) noexcept {
    drop();
    share_ = std::move(other.share_);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;
  ~Charge() { drop(); }

  uint64_t bytes() const { return bytes_; }
  Charge another() const { return Charge(share_); }  // of the same share, without bytes

  // Has so many bytes from now on. Without a share, nothing is counted.
  Refusal resize(uint64_t bytes) {
    if (!share_) return Refusal::none;
    if (bytes > bytes_) {
      if (const Refusal refusal = share_->take(bytes - bytes_); refusal != Refusal::none) return refusal;
      bytes_ = bytes;
    } else {
      force(bytes);
    }
    return Refusal::none;
  }
  void force(uint64_t bytes) {
    if (!share_) return;
    if (bytes > bytes_) share_->force(bytes - bytes_);
    if (bytes < bytes_) share_->give_back(bytes_ - bytes);
    bytes_ = bytes;
  }
  void drop() { force(0); }

 private:
  std::shared_ptr<Share> share_;
  uint64_t bytes_ = 0;
};

}  // namespace pytriton::http
