#include "routes.h"

namespace pytriton::http {

bool predict(TRITONSERVER_Server* /*server*/, Exchange& /*exchange*/, const Target& /*target*/) { return false; }

}  // namespace pytriton::http
