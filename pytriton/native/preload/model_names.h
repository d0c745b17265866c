// The names of models that were loaded, for errors about a name that none has.
#pragma once

#include "../frames/triton.h"

namespace pytriton {

void add_model_name(const char* model);
void remove_model_name(const char* model);

// An error of the server about a model; if it has no model of this name, the one that is nearest is added. Only where
// whoever may call models may know their names. Takes the error, and returns it or another one; null stays null.
TRITONSERVER_Error* with_nearest_name(TRITONSERVER_Error* error, const char* model);

}  // namespace pytriton

// What the preloaded library adds to an error about a name that no model has; empty if it adds nothing. Valid until the
// thread's next call.
extern "C" const char* pytriton_question_about(const char* model);
