// WHOLE MODELS: to manifests a model in stages is one function, as its developer deployed it.
#pragma once

#include <set>
#include <string>

#include "proto/admin.pb.h"

namespace troupe::shell {

// Puts one function in place of all stages of a model in the cluster's lists, and removes the workflow that calls them. Answers
// the names of these models.
std::set<std::string> JoinStages(proto::AdminReply& functions, proto::AdminReply& workflows);
// A step that calls one of these models calls a function: a file may say 'function' or 'workflow'.
void CallAsFunctions(const std::set<std::string>& models, proto::WorkflowSpec& workflow);

}  // namespace troupe::shell
