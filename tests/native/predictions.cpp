// Answers requests to /predict, each a line of the input: a model's name, a tab, and JSON. The models answer with their
// inputs. Writes a line for each: its status, a space and the answer, or "-" if it is left to the application.
//
// Usage: predictions <file with a line for each model: its name, a tab, and its configuration>
#include <atomic>
#include <fstream>
#include <iostream>
#include <thread>

#include "echo_server.h"
#include "edge/route_options.h"
#include "predict/predict.h"

using namespace pytriton::http;

int main(int count, char** arguments) {
  require(count == 2, "usage: predictions <configurations>");
  std::ifstream file(arguments[1]);
  std::string line;
  while (std::getline(file, line)) {
    const size_t tab = line.find('\t');
    configurations[line.substr(0, tab)] = line.substr(tab + 1);
  }
  require(!configurations.empty(), "there are models");
  std::ios::sync_with_stdio(false);
  while (std::getline(std::cin, line)) {
    const size_t tab = line.find('\t');
    TestExchange exchange(line.substr(tab + 1), {});
    std::atomic<bool> is_left{false};
    if (predict(nullptr, exchange, {line.substr(0, tab), -1}, [&] { is_left = true; })) {
      while (!is_left && !exchange.is_complete()) std::this_thread::yield();
    } else {
      is_left = true;
    }
    if (!is_left) {
      exchange.wait();
      require(exchange.answer.find('\n') == std::string::npos, "an answer is one line");
      std::cout << exchange.status << ' ' << exchange.answer << '\n';
    } else {
      std::cout << "-\n";
    }
  }
  wait_for_answers();
  require(!leftovers(), "requests and responses are deleted");
  return 0;
}
