#include "account.h"

#include <arpa/inet.h>
#include <malloc.h>

#include <array>
#include <cstring>

#include "background.h"
#include "clock.h"

namespace pytriton::http {

namespace {

constexpr int64_t kTrimInterval_ns = 2 * kSecond_ns;

}  // namespace

std::string network_of(const std::string& address) {
  constexpr size_t kNetworkBytes = 8;
  in6_addr six{};
  if (::inet_pton(AF_INET6, address.c_str(), &six) != 1) return address;
  std::memset(&six.s6_addr[kNetworkBytes], 0, sizeof six - kNetworkBytes);
  std::array<char, INET6_ADDRSTRLEN> text{};
  ::inet_ntop(AF_INET6, &six, text.data(), text.size());
  return std::string(text.data()) + "/64";
}

Share::Share(std::shared_ptr<Account> account, std::string key, uint64_t most)
    : account_(std::move(account)), key_(std::move(key)), most_(most) {}

Share::~Share() {
  const std::lock_guard<std::mutex> lock(account_->mutex_);
  const auto found = account_->shares_.find(key_);
  if (found != account_->shares_.end() && found->second.expired()) account_->shares_.erase(found);
}

Refusal Share::take(uint64_t bytes) {
  if (used_.fetch_add(bytes, std::memory_order_relaxed) + bytes > most_) {
    used_.fetch_sub(bytes, std::memory_order_relaxed);
    account_->trim();
    return Refusal::share;
  }
  if (account_->used_.fetch_add(bytes, std::memory_order_relaxed) + bytes > account_->most_) {
    give_back(bytes);
    account_->trim();
    return Refusal::all;
  }
  return Refusal::none;
}

void Share::force(uint64_t bytes) {
  used_.fetch_add(bytes, std::memory_order_relaxed);
  account_->used_.fetch_add(bytes, std::memory_order_relaxed);
}

void Share::give_back(uint64_t bytes) {
  account_->used_.fetch_sub(bytes, std::memory_order_relaxed);
  used_.fetch_sub(bytes, std::memory_order_relaxed);
}

// The C library keeps much of what was freed, between what is used: under load up to twice the memory that is charged.
void Account::trim() {
  const int64_t now = now_ns();
  int64_t last = trimmed_at_.load(std::memory_order_relaxed);
  if (now - last < kTrimInterval_ns || !trimmed_at_.compare_exchange_strong(last, now)) return;
  run_in_background({}, 0, [] { ::malloc_trim(0); });
}

std::shared_ptr<Share> Account::share_of(const std::string& address) {
  const uint64_t most = address.empty() ? most_ : most_of_address_ ? most_of_address_ : most_ / 2;
  std::string key = network_of(address);
  std::shared_ptr<Share> share;  // outlives the lock, which its end takes
  const std::lock_guard<std::mutex> lock(mutex_);
  std::weak_ptr<Share>& known = shares_[key];
  share = known.lock();
  if (!share) known = share = std::make_shared<Share>(shared_from_this(), std::move(key), most);
  return share;
}

}  // namespace pytriton::http
