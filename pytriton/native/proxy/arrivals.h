// Which models have a scheduler, for those who announce requests to them.
#pragma once

#include <memory>
#include <string>

#include "../frames/arrivals.h"

namespace pytriton {

// pytriton_arrivals() finds the model as long as this is kept.
std::shared_ptr<Arrivals> register_arrivals(const std::string& model);

}  // namespace pytriton
