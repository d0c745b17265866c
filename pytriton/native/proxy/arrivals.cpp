#include "arrivals.h"

#include <map>
#include <mutex>
#include <shared_mutex>

namespace pytriton {

namespace {
struct Entry {
  Arrivals arrivals;
  int schedulers = 0;  // of the versions of the model
};

struct Registry {
  std::shared_mutex mutex;
  std::map<std::string, Entry, std::less<>> models;  // entries stay, as others keep their addresses
};

Registry& registry() {
  static auto* const only = new Registry;  // is used while the process ends
  return *only;
}

struct Registration {
  Registration() = default;
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  ~Registration() {
    if (!entry) return;
    const std::lock_guard lock(registry().mutex);
    --entry->schedulers;
  }
  Entry* entry = nullptr;
};
}  // namespace

std::shared_ptr<Arrivals> register_arrivals(const std::string& model) {
  const auto registration = std::make_shared<Registration>();
  Registry& known = registry();
  const std::lock_guard lock(known.mutex);
  registration->entry = &known.models[model];
  ++registration->entry->schedulers;
  return {registration, &registration->entry->arrivals};
}

}  // namespace pytriton

pytriton::Arrivals* pytriton::pytriton_arrivals(const char* model) {
  Registry& known = registry();
  const std::shared_lock lock(known.mutex);
  const auto found = known.models.find(std::string_view(model));
  return found != known.models.end() && found->second.schedulers ? &found->second.arrivals : nullptr;
}
