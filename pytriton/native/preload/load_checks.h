// Names of models and files that a load may use: what is no plain name or path within a model's folder is refused.
#pragma once

#include <string>
#include <string_view>

namespace pytriton {

// Each returns why the name is refused; empty if it is not.
std::string wrong_model_name(std::string_view name);
std::string wrong_file_name(std::string_view parameter);  // "file:<path>", as a client names the file
std::string wrong_paths(std::string_view config);         // of labels and data, in the JSON of a configuration

}  // namespace pytriton
