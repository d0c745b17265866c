#include "zlib.h"

#include <dlfcn.h>

namespace pytriton::http {

namespace {

template <typename Function>
bool look_up(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

const Zlib* Zlib::get() {
  static const Zlib* const found = []() -> const Zlib* {
    void* library = RTLD_DEFAULT;
    if (!dlsym(library, "inflateInit2_")) library = dlopen("libz.so.1", RTLD_NOW | RTLD_LOCAL);
    static Zlib zlib;
    const bool has_all =
        look_up(library, "inflateInit2_", zlib.inflate_init) && look_up(library, "inflate", zlib.inflate) &&
        look_up(library, "inflateEnd", zlib.inflate_end) && look_up(library, "deflateInit2_", zlib.deflate_init) &&
        look_up(library, "deflate", zlib.deflate) && look_up(library, "deflateEnd", zlib.deflate_end);
    return has_all ? &zlib : nullptr;
  }();
  return found;
}

}  // namespace pytriton::http
