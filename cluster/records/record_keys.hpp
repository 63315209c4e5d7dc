// RECORD KEYS: where single records lie in the settings of the manager's store.
#pragma once

namespace troupe::cluster {

inline constexpr char kClusterKey[] = "cluster";
inline constexpr char kEpochKey[] = "epoch";
inline constexpr char kRevisionKey[] = "revision";
inline constexpr char kHomeKey[] = "state-home/";           // and a model's digest
inline constexpr char kTermKey[] = "term/last";             // no home that was given up had a larger term
inline constexpr char kDrainedKey[] = "drained/";           // and a node's name
inline constexpr char kApiKeyKey[] = "api-key/";            // and the key's name
inline constexpr char kUsageKey[] = "usage/total/";         // and "TENANT/FUNCTION/DAY"
inline constexpr char kUsageLedgerKey[] = "usage/ledger/";  // and the ledger's name
inline constexpr char kProfileKey[] = "profile/";           // and "DIGEST/PRECISION/KIND"
inline constexpr char kExperimentKey[] = "profiling/";      // and the experiment's number

}  // namespace troupe::cluster
