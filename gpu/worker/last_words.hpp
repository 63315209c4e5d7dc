// What a worker leaves behind when it crashes.
#pragma once

#include <string_view>

#include "gpu/worker/control_page.hpp"

namespace troupe::gpu {

// From now on a fatal signal writes its name, the address and the order that was computed into the page, and
// then ends the process as it would have. Once per process; the page stays mapped for ever.
void WriteLastWordsOnCrash(ControlPage& page);

// In the signal handler of a worker that its jail ends: the system call's name, into the page when there is
// one by then, and to standard error.
void WriteForbiddenCall(std::string_view name);

}  // namespace troupe::gpu
