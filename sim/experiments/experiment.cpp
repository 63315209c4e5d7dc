#include "sim/experiments/experiment.hpp"

#include <array>

namespace troupe::sim {

std::span<const Experiment> Experiments() {
  constexpr std::string_view kFunctions = "functions";
  constexpr std::string_view kWorkingSet = "models in the working set";
  static constexpr std::array<Experiment, 32> kTable = {{
      {"lalb-latency", "003, Fig. 4a: mean latency on 12 GPUs, working sets of 15, 25 and 35 models",
       &LalbLatency, kWorkingSet},
      {"lalb-misses", "003, Fig. 4b: requests that do not find their model, and loads, per request",
       &LalbMisses, kWorkingSet},
      {"lalb-utilization", "003, Fig. 4c: share of GPU time in runs", &LalbUtilization, kWorkingSet},
      {"lalb-false-misses", "003, Fig. 5: loads of models that another GPU had", &LalbFalseMisses,
       kWorkingSet},
      {"lalb-duplicates", "003, Fig. 6: GPUs that have the most asked model", &LalbDuplicates, kWorkingSet},
      {"lalb", "all of these, from the same runs", &Lalb, kWorkingSet},
      {"lalb-o3-sweep", "003, Fig. 7: the limit of out-of-order dispatch from 0 to 45", &LalbO3Sweep,
       "requests that may pass one"},
      {"lalb-nodes",
       "003 across nodes: mean latency on one node of 12 GPUs, and on 4 and 12 nodes with as many",
       &LalbNodes, kWorkingSet},
      {"lalb-placement", "a yardstick for overlapped loads: models where they lie best for known requests",
       &LalbPlacement, kWorkingSet},
      {"torpor-node", "002, Fig. 10: 160 functions on four GPUs, with and without a runtime each",
       &TorporOneNode, kFunctions},
      {"torpor-policies", "002, Fig. 11: functions that meet their SLO, of 320 to 800 on four GPUs",
       &TorporPolicies, kFunctions},
      {"torpor-heaviness", "002, Fig. 12: tail latencies of a light and a heavy model", &TorporHeaviness,
       kFunctions},
      {"torpor-efficiency", "002, Fig. 8: functions of few requests on one GPU", &TorporEfficiency,
       "requests a minute of each function"},
      {"torpor-balance", "002, Fig. 9: the load of four GPUs under functions of many requests",
       &TorporBalance, "requests a minute of each function"},
      {"torpor-cluster", "002, Fig. 14: functions that meet their SLO, of 400 to 2,000 on 24 GPUs",
       &TorporCluster, kFunctions},
      {"torpor-deadlines", "002, Fig. 16: deadlines of 60 to 80 ms, in order of arrival and by SLO",
       &TorporDeadlines, "deadline of the CV models, ms"},
      {"torpor-cost", "002, 8: what a function costs that shares GPUs, and one that keeps its own",
       &TorporCost, "requests a day of each function"},
      {"streambox-throughput", "004, Fig. 13: workflows in time on one GPU, three kinds of load",
       &StreamBoxThroughput, "load"},
      {"streambox-tenants", "004, Fig. 19: three and six users of one GPU", &StreamBoxTenants, "users"},
      {"streambox-cluster", "004, Fig. 20: four and eight nodes", &StreamBoxCluster, "nodes"},
      {"azure-day", "1,350 functions of Azure's trace at 1, 10 and 50 times the rate on 1 to 8 GPUs",
       &AzureDay, "GPUs"},
      {"gpu-kinds",
       "GPUs of two kinds, one half as fast: requests in time, with and without what a node knows of it",
       &GpuKindChoice, "requests a second"},
      {"gpu-kinds-nodes",
       "two nodes, one with GPUs half as fast: requests in time, with and without what a router knows of it",
       &NodeKindChoice, "requests a second"},
      {"gateways",
       "one to eight gateways before four nodes: requests in time, with and without what other gateways gave the nodes",
       &GatewayChoice, "requests a second"},
      {"scale", "what decisions cost with 10,000 to 1,000,000 functions on 100 to 10,000 GPUs, in wall time",
       &Scale, kFunctions, Basis::kWallTime},
      {"model-fanout", "a model of 512 MiB that 1 to 32 nodes fetch at the same time, over one transfer",
       &ModelFanout, "nodes", Basis::kLinks},
      {"fast-spatial", "001, 5.3: eight instances of 12 % of the SMs against one on all of them",
       &FastSpatial, "model"},
      {"fast-isolation", "001, 5.2 and 5.3: overloaded neighbours, elastic quotas, throughput by quota",
       &FastIsolation, "what they share"},
      {"fast-memory", "001, 5.5: instances in a GPU's memory, with and without shared weights", &FastMemory,
       "instances"},
      {"fast-packing", "001, 5.4: GPUs for 4 ResNet, 2 RNNT and 2 BERT instances in each of 420 orders",
       &FastPacking, "instances"},
      {"fast-efficiency", "001, 5.4, Fig. 11: what of its GPUs the placement of these instances makes use of",
       &FastEfficiency, "instances"},
      {"fast-autoscaling",
       "001, 3.4.1 and 5.4: late requests and GPU seconds while the load of ResNet changes", &FastAutoscaling,
       "load"},
  }};
  return kTable;
}

}  // namespace troupe::sim
