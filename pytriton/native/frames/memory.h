// How much memory is left to the server: of the machine, and of the control groups that it runs in.
#pragma once

#include <string>
#include <vector>

namespace pytriton {

class Memory {
 public:
  Memory();

  // Whether one of them has less than its reserve available; to look takes some 0.1 ms.
  bool is_short();

  // Bytes that all of them have left, and RLIMIT_AS.
  double available() const;

  // Takes a shortage for normal: half of the reserve will do, until all of it is available again. A server keeps much
  // of the memory that it does not need any more, and uses it again.
  void accept();

 private:
  struct Source {
    std::string folder;  // of a control group; empty for the machine
    bool is_version_2;
    bool accepted = false;
  };
  struct Amounts {
    double available, total;  // bytes; total 0 if unknown
  };
  static Amounts amounts(const Source& source);

  std::vector<Source> sources_;
};

}  // namespace pytriton
