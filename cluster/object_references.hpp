// OBJECT REFERENCES: which objects of the model repository a record refers to. What no record refers to may be
// removed from the manager's disk.
#pragma once

#include <set>
#include <string>

#include "proto/function.pb.h"
#include "proto/workflow.pb.h"

namespace troupe::cluster {

using Digests = std::set<std::string>;

// The published ONNX file, and model and weights in each layout.
void AddObjectsOf(const proto::FunctionRecord& function, Digests& digests);
// Inputs, outputs of steps and outputs that were too large for the record.
void AddObjectsOf(const proto::StartRun& start, Digests& digests);
void AddObjectsOf(const proto::RunRecord& run, Digests& digests);

}  // namespace troupe::cluster
