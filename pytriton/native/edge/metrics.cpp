#include "metrics.h"

#include <algorithm>
#include <numeric>

#include "clock.h"

namespace pytriton::http {

namespace {

constexpr const char* kNames[kRoutes] = {"infer",       "generate", "generate_stream", "predict",     "triton",
                                         "application", "own",      "grpc_infer",      "grpc_stream", "grpc_other",
                                         "none"};

void append_help(std::string& page, const char* name, const char* type, const char* help) {
  page += std::string("# HELP ") + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
}

void append_sample(std::string& page, const char* name, const char* suffix, const std::string& labels,
                   const std::string& value) {
  page.append(name).append(suffix);
  if (!labels.empty()) page.append("{").append(labels).append("}");
  page.append(" ").append(value).append("\n");
}

std::string seconds(int64_t microseconds) {
  std::string text = std::to_string(static_cast<double>(microseconds) / 1e6);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

}  // namespace

const char* name_of(Route route) { return kNames[static_cast<size_t>(route)]; }

void Metrics::count(Route route, int status, int64_t duration_ns, uint64_t sent) {
  const auto row = static_cast<size_t>(route);
  requests_[row][static_cast<size_t>(std::clamp(status, 0, kStatuses - 1))].add();
  durations_[row * (bounds_ns_.size() + 1) + bucket_of(bounds_ns_, duration_ns)].add();
  duration_sum_us_[row].add(static_cast<uint64_t>(std::max<int64_t>(duration_ns / kMicrosecond_ns, 0)));
  sent_.add(sent);
}

std::string Metrics::page(const std::vector<const Metrics*>& loops, const ServerFigures& figures) {
  const std::vector<int64_t>& bounds_ns = loops.front()->bounds_ns_;
  const auto sum = [&](auto value_of) {
    return std::accumulate(loops.begin(), loops.end(), uint64_t{0},
                           [&](uint64_t total, const Metrics* each) { return total + value_of(*each).value(); });
  };
  std::string page;
  append_help(page, "pytriton_http_requests_total", "counter", "Requests that were answered.");
  for (size_t route = 0; route < kRoutes; ++route) {
    for (size_t status = 0; status < kStatuses; ++status) {
      const uint64_t total = sum([&](const Metrics& each) -> const Counter& { return each.requests_[route][status]; });
      if (!total) continue;
      const std::string labels =
          std::string(R"(route=")") + kNames[route] + R"(",status=")" + std::to_string(status) + '"';
      append_sample(page, "pytriton_http_requests_total", "", labels, std::to_string(total));
    }
  }
  append_help(page, "pytriton_http_request_duration_seconds", "histogram",
              "Time from a request's last byte to its answer's last byte.");
  constexpr const char* kDuration = "pytriton_http_request_duration_seconds";
  for (size_t route = 0; route < kRoutes; ++route) {
    const std::string label = std::string(R"(route=")") + kNames[route] + '"';
    std::string lines;
    uint64_t total = 0;
    for (size_t bucket = 0; bucket <= bounds_ns.size(); ++bucket) {
      const size_t place = route * (bounds_ns.size() + 1) + bucket;
      total += sum([&](const Metrics& each) -> const Counter& { return each.durations_[place]; });
      const std::string bound = bucket < bounds_ns.size() ? seconds(bounds_ns[bucket] / kMicrosecond_ns) : "+Inf";
      std::string labels = label;
      labels.append(R"(,le=")").append(bound).append("\"");
      append_sample(lines, kDuration, "_bucket", labels, std::to_string(total));
    }
    if (!total) continue;
    page += lines;
    const uint64_t sum_us = sum([&](const Metrics& each) -> const Counter& { return each.duration_sum_us_[route]; });
    append_sample(page, kDuration, "_sum", label, seconds(static_cast<int64_t>(sum_us)));
    append_sample(page, kDuration, "_count", label, std::to_string(total));
  }
  const auto figure = [&](const char* name, const char* type, const char* help, uint64_t value) {
    append_help(page, name, type, help);
    append_sample(page, name, "", "", std::to_string(value));
  };
  const auto single = [&](const char* name, const char* type, const char* help, auto value_of) {
    figure(name, type, help, sum(value_of));
  };
  using Of = const Metrics&;
  single("pytriton_http_received_bytes_total", "counter", "Bytes of requests.",
         [](Of each) -> const Counter& { return each.received; });
  single("pytriton_http_sent_bytes_total", "counter", "Bytes of answers.",
         [](Of each) -> const Counter& { return each.sent_; });
  single("pytriton_http_requests_in_flight", "gauge", "Requests that have come and are not answered.",
         [](Of each) -> const Counter& { return each.in_flight; });
  single("pytriton_http_connections", "gauge", "Open connections of clients.",
         [](Of each) -> const Counter& { return each.open; });
  single("pytriton_http_connections_accepted_total", "counter", "Connections that were accepted.",
         [](Of each) -> const Counter& { return each.accepted; });
  single("pytriton_http_connections_refused_total", "counter", "Connections that were closed because of a limit.",
         [](Of each) -> const Counter& { return each.refused; });
  single("pytriton_http_connections_timed_out_total", "counter", "Connections that were closed because of a time-out.",
         [](Of each) -> const Counter& { return each.timed_out; });
  single("pytriton_http_connections_given_way_total", "counter",
         "Idle connections that were closed because others needed their descriptors.",
         [](Of each) -> const Counter& { return each.given_way; });
  figure("pytriton_server_restarts_total", "counter", "Launches of the server after its death.", figures.restarts);
  figure("pytriton_http_buffered_bytes", "gauge", "Memory that requests and answers take.", figures.buffered_bytes);
  return page;
}

}  // namespace pytriton::http
