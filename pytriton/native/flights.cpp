// What Python calls, through ctypes; see pytriton/inprocess/flight_library.py. Nothing here needs the interpreter's
// lock.
#include <dlfcn.h>

#include <cstring>

#include "flight.h"

using pytriton::Airspace;
using pytriton::calls;
using pytriton::Flight;
using pytriton::Mailbox;
using pytriton::Plan;
using Space = std::shared_ptr<Airspace>;
using Box = std::shared_ptr<Mailbox>;  // shared with the flights that put numbers into it

#pragma GCC visibility push(default)
extern "C" {

// Finds the functions of the server; returns the name of one that it lacks, or nullptr.
const char* pytriton_load(void* server, pytriton::AllocateInPython allocate) {
#define PYTRITON_FIND(name)                                                                  \
  calls.name = reinterpret_cast<decltype(calls.name)>(dlsym(server, "TRITONSERVER_" #name)); \
  if (!calls.name) return "TRITONSERVER_" #name;
  PYTRITON_CALLS(PYTRITON_FIND)
#undef PYTRITON_FIND
  Flight::allocate_in_python = allocate;
  return nullptr;
}

// To be called once, after pytriton_load. `over` stays for ever.
TRITONSERVER_Error* pytriton_report(const Box* over) {
  Flight::over = over->get();
  return Flight::make_allocator();
}

Box* pytriton_mailbox_new() { return new Box(std::make_shared<Mailbox>()); }
void pytriton_mailbox_delete(const Box* box) { delete box; }
int pytriton_mailbox_descriptor(const Box* box) { return (*box)->descriptor(); }
size_t pytriton_mailbox_take(const Box* box, uint64_t* numbers, size_t capacity) {
  return (*box)->take(numbers, capacity);
}

Space* pytriton_airspace_new(TRITONSERVER_Server* server) { return new Space(std::make_shared<Airspace>(server)); }
void pytriton_airspace_close(const Space* airspace) { (*airspace)->close(); }
void pytriton_airspace_delete(const Space* airspace) { delete airspace; }

// Makes a request from a Plan and what follows it, and sends it unless that is held. `flight` is written before.
TRITONSERVER_Error* pytriton_flight_new(const Space* airspace, const char* model, const char* text, Flight** flight,
                                        TRITONSERVER_InferenceRequest** request) {
  Plan plan{};
  std::memcpy(&plan, text, sizeof plan);
  auto* made = new Flight(*airspace, plan);
  *flight = made;
  auto* error = made->make(model, text + sizeof plan);
  *request = made->request();
  return error || plan.flags & Plan::HOLD ? error : made->send();
}
TRITONSERVER_Error* pytriton_flight_send(Flight* flight) { return flight->send(); }
char* pytriton_flight_next(Flight* flight, int64_t wait_ns) { return flight->next(wait_ns); }
bool pytriton_flight_finish(Flight* flight, char* block) { return flight->finish(block); }
void pytriton_flight_cancel(Flight* flight) { flight->cancel(); }
bool pytriton_flight_drop(Flight* flight) { return flight->drop(); }
void pytriton_free(void* memory) { std::free(memory); }
}
#pragma GCC visibility pop
