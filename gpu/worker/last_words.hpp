// What a worker leaves behind when it crashes.
#pragma once

#include "gpu/worker/control_page.hpp"

namespace troupe::gpu {

// From now on a fatal signal writes its name, the address and the order that was computed into the page, and
// then ends the process as it would have. Once per process; the page stays mapped for ever.
void WriteLastWordsOnCrash(ControlPage& page);

}  // namespace troupe::gpu
