// FORBIDDEN CALLS: what a process says when a system call that its filter forbids ends it.
#pragma once

#include <string_view>

namespace troupe::gpu {

// Runs in a signal handler, on the thread that made the call: may do only what is async-signal-safe.
using TellForbiddenCall = void (*)(std::string_view name);

// From now on a call that the filter of a worker kills for is told by its name ("ptrace", "number 450"), and
// then ends the process by SIGSYS. Once per process, before the filter is installed: from then on nothing can
// change what the signal does.
void TellOfForbiddenCalls(TellForbiddenCall tell);

}  // namespace troupe::gpu
