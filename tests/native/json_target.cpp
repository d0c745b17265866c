// What reads JSON that a worker, the server or a file holds: a value or a FrameError, and texts keep their bytes.
#include "frames/failure.h"
#include "frames/json.h"
#include "server.h"
#include "target.h"

namespace {

using namespace pytriton;

void touch(const Json& value) {
  try {
    switch (value.kind()) {
      case Json::Kind::boolean:
        value.boolean();
        break;
      case Json::Kind::number:
        value.integer();
        break;
      case Json::Kind::text: {
        value.integer();
        if (!is_utf8(value.text())) break;
        std::string quoted;
        append_json(quoted, value.text());
        if (Json::parse(quoted).text() != value.text()) broken("a text that is written as JSON is read as it was");
        break;
      }
      case Json::Kind::list:
        for (const Json& each : value.list()) touch(each);
        break;
      case Json::Kind::object:
        for (const auto& [name, each] : value.object()) {
          if (value.find(name) != &each) broken("a member is found by its name");
          touch(each);
        }
        break;
      default:
        break;
    }
  } catch (const FrameError&) {  // of another kind, or too large a number
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    touch(Json::parse({reinterpret_cast<const char*>(data), size}));
  } catch (const FrameError&) {  // no JSON
  }
  return 0;
}
