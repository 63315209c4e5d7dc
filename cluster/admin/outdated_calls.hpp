// OUTDATED CALLS: a workflow is checked against the functions and workflows that there are when it is submitted. A version that
// comes later may have other tensors: its deployment warns of the calls that it does not fit.
#pragma once

#include <string>

#include "cluster/records/catalogue.hpp"

namespace troupe::cluster {

// What is wrong with the newest versions of the workflows that call this function or workflow without a version, now that this
// version of it is there; "": nothing, or such calls do not get this version.
[[nodiscard]] std::string OutdatedCallsOf(const std::string& name, const std::string& version,
                                          const Catalogue& catalogue);

}  // namespace troupe::cluster
