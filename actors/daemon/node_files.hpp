// NODE FILES: what a node keeps in its data directory of what it learned (`profiles`), of what it had adopted
// (`adopted`) and of what functions used (`usage`), so that it goes on after it has lost everything but its disk.
#pragma once

#include <string>

#include "actors/core/work_pool.hpp"
#include "actors/node/node_controller.hpp"

namespace troupe::actors {

// Reads them into `options`, and has the node controller hand over newer ones. Blocks. What is damaged is
// told in the log and is as if it were not there. `run` has the pages of the workers; `pool` outlives the node
// controller.
void KeepNodeFiles(const std::string& data, const std::string& run, WorkPool& pool, NodeOptions& options);

}  // namespace troupe::actors
