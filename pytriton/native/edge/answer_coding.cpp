#include "answer_coding.h"

#include <algorithm>
#include <new>
#include <optional>
#include <vector>

#include "background.h"

namespace pytriton::http {

namespace {

constexpr unsigned kMostElements = 32;           // of Accept-Encoding: who names more gets the answer as it is
constexpr int kAbsent = -1, kMostWeight = 1000;  // thousandths

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

// A weight in thousandths: 0 or 1, and at most three digits behind a point.
std::optional<int> parse_weight(std::string_view text) {
  constexpr size_t kLongest = 5;
  if (text.empty() || text.size() > kLongest || (text[0] != '0' && text[0] != '1')) return std::nullopt;
  if (text.size() > 1 && text[1] != '.') return std::nullopt;
  int weight = text[0] == '1' ? kMostWeight : 0, unit = kMostWeight;
  for (size_t index = 2; index < text.size(); ++index) {
    if (!is_digit(text[index])) return std::nullopt;
    unit /= 10;
    weight += unit * (text[index] - '0');
  }
  if (weight > kMostWeight) return std::nullopt;
  return weight;
}

// The weight of an element's parameters, such as "q=0.5".
std::optional<int> weight_of(std::string_view parameters) {
  if (parameters.empty()) return kMostWeight;
  if (parameters.size() < 2 || (parameters[0] | 0x20) != 'q' || parameters[1] != '=') return std::nullopt;
  return parse_weight(parameters.substr(2));
}

struct AcceptedCodings {
  int gzip = kAbsent, deflate = kAbsent, identity = kAbsent, any = kAbsent;
  bool has_others = false;

  void add(std::string_view element) {
    const size_t semicolon = element.find(';');
    const std::string_view name = trimmed(element.substr(0, semicolon));
    const auto weight =
        weight_of(semicolon == std::string_view::npos ? std::string_view() : trimmed(element.substr(semicolon + 1)));
    if (name.empty() || !weight) return;
    if (equals_ignoring_case(name, "gzip")) {
      gzip = *weight;
    } else if (equals_ignoring_case(name, "deflate")) {
      deflate = *weight;
    } else if (equals_ignoring_case(name, "identity")) {
      identity = *weight;
    } else if (name == "*") {
      any = *weight;
    } else {
      has_others |= *weight > 0;
    }
  }

  Coding best() const {
    const bool is_identity_refused = identity == 0 || (identity == kAbsent && any == 0);
    const int of_any = is_identity_refused ? std::max(any, 0) : 0;
    const int of_gzip = gzip == kAbsent ? of_any : gzip, of_deflate = deflate == kAbsent ? of_any : deflate;
    if (!of_gzip && !of_deflate) return Coding::identity;
    const Coding better = of_gzip >= of_deflate ? Coding::gzip : Coding::deflate;
    if (is_identity_refused) return better;
    const bool is_only = !has_others && any <= 0 && (!of_gzip || !of_deflate);
    return is_only && std::max(of_gzip, of_deflate) > identity ? better : Coding::identity;
  }
};

size_t size_of(const Response& response) {
  size_t size = response.body.size();
  for (const iovec& part : response.parts) size += part.iov_len;
  return size;
}

// Compresses an answer, a part at a time. Leaves it as it is if there is no zlib, or no memory.
class Compression {
 public:
  Compression(Response&& response, Coding coding)
      : response_(std::move(response)), coding_(coding), deflater_(coding, parts_of(response_)) {}

  // False: it is done.
  bool step() {
    if (deflater_.step()) return true;
    try {
      if (deflater_.is_complete()) finish();
    } catch (const std::bad_alloc&) {  // nothing of the answer was changed
    }
    return false;
  }

  Response take() { return std::move(response_); }

  Charge charge;  // for what it becomes

 private:
  static std::vector<iovec> parts_of(Response& response) {
    std::vector<iovec> parts;
    if (!response.body.empty()) parts.push_back({response.body.data(), response.body.size()});
    parts.insert(parts.end(), response.parts.begin(), response.parts.end());
    return parts;
  }

  void finish() {
    std::string headers = response_.headers;
    headers += coding_ == Coding::gzip ? "Content-Encoding: gzip\r\n" : "Content-Encoding: deflate\r\n";
    response_.body = deflater_.take();
    response_.headers = std::move(headers);
    response_.parts.clear();
    response_.owner.reset();
  }

  Response response_;
  const Coding coding_;
  Deflater deflater_;
};

}  // namespace

Coding coding_of(const Request& request) {
  AcceptedCodings accepted;
  unsigned elements = 0;
  for (const Header& header : request.headers) {
    if (!equals_ignoring_case(header.name, "accept-encoding")) continue;
    for (std::string_view rest = header.value; !rest.empty();) {
      if (++elements > kMostElements) return Coding::identity;
      const size_t comma = rest.find(',');
      accepted.add(rest.substr(0, comma));
      rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
    }
  }
  return elements ? accepted.best() : Coding::identity;
}

void send_as_accepted(Exchange& exchange, Response&& response) {
  const Coding coding = coding_of(exchange.request());
  if (coding == Coding::identity) return exchange.send(std::move(response));
  const size_t size = size_of(response);
  const auto compression = std::make_shared<Compression>(std::move(response), coding);
  if (!exchange.reserve(size, compression->charge)) return exchange.send(compression->take());
  const auto step = [compression, reference = ExchangeReference(exchange)] {
    if (compression->step()) return true;
    reference->send(compression->take());
    return false;
  };
  if (size > Deflater::kAtOnce) return run_in_steps(exchange.request().peer, step);
  step();
}

}  // namespace pytriton::http
