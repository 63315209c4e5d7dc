// Ctrl-C: the first one asks to end with what there is, a second one ends the program at once.
#pragma once

namespace troupe::sim {

void WatchInterrupts();
[[nodiscard]] bool Interrupted();

}  // namespace troupe::sim
