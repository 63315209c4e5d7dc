// VIEWS: what the cluster answered, as tables and paragraphs for people. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/admin.pb.h"
#include "proto/request.pb.h"
#include "shell/text/text.hpp"

namespace troupe::shell {

// "digits version 2"; "digits" for the newest.
[[nodiscard]] std::string DescribeKey(const proto::FunctionKey& key);
// "image FP32 [-1,1,8,8], mask INT64 [4]"; "-" for none.
[[nodiscard]] std::string DescribeSpecs(const google::protobuf::RepeatedPtrField<proto::TensorSpec>& specs);

// "50 ms at 98 %"; "-" without a deadline.
[[nodiscard]] std::string DescribeObjective(std::int64_t deadline_ns, double percentile);

[[nodiscard]] std::string ClusterSummary(const proto::ClusterStatusReply& status, const Style& style);
[[nodiscard]] Table MemberTable(const proto::ClusterStatusReply& status);
[[nodiscard]] Table NodeTable(const proto::ClusterStatusReply& status);
[[nodiscard]] Colour ColourOf(proto::MemberState state);
[[nodiscard]] std::string NameOf(proto::MemberState state);

[[nodiscard]] Table GpuTable(const proto::AdminReply& reply);
// One line per node: how full its host region is, and where its models are.
// What is wrong with GPUs that are not used any more.
[[nodiscard]] std::string ProblemLines(const proto::AdminReply& reply);
[[nodiscard]] std::string RegionLines(const proto::AdminReply& reply);
// Its memory by model, its link, what runs on it, its latest swaps. `functions` (a reply to ListFunctions)
// gives models their names.
[[nodiscard]] std::string GpuDetails(const proto::GpuStatus& gpu, const proto::AdminReply& functions,
                                     const Style& style);
// Of a GPU's supervision: green when it serves, red when it cannot.
[[nodiscard]] Colour ColourOfGpu(const std::string& state);

// How large the weights are as nodes hold them: packed where they are packed in another precision, else as imported.
[[nodiscard]] std::string WeightsOf(const proto::FunctionRecord& record);
// One line after a deployment.
[[nodiscard]] std::string FunctionLine(const proto::FunctionStatus& function);
// How clients call a model in stages.
[[nodiscard]] std::string StagesLine(const proto::WorkflowRecord& workflow);
[[nodiscard]] Table FunctionTable(const proto::AdminReply& reply);
// `gpus`: on which its share of the SMs is rounded; may have none.
[[nodiscard]] std::string FunctionDetails(const proto::FunctionStatus& function,
                                          const proto::AdminReply& gpus, const Style& style);
// Each setting of how the function shares its GPUs, and where its value comes from.
[[nodiscard]] std::string SharingLines(const proto::FunctionStatus& function);
// "quota_limit 80 %, sm_partition 100 % (all SMs)": those of `names`, as they apply.
[[nodiscard]] std::string DescribeSettings(const proto::FunctionStatus& function,
                                           const std::vector<std::string>& names);
// How the function follows its load, and the latest decisions.
[[nodiscard]] std::string ScalingDetails(const proto::ScalingStatus& scaling, const Style& style);
// "16 of 132 SMs on node-a/0, node-a/1": what the percentage of the SMs comes to on these GPUs.
[[nodiscard]] std::string SmLines(std::uint32_t percent, const proto::AdminReply& gpus);

[[nodiscard]] Table WorkflowTable(const proto::AdminReply& reply);
[[nodiscard]] std::string WorkflowDetails(const proto::WorkflowRecord& workflow, const Style& style);
[[nodiscard]] Table RunTable(const proto::AdminReply& reply);
[[nodiscard]] std::string RunDetails(const proto::RunRecord& run, const Style& style);

// How functions stood to their SLOs in the last hour, and since the gateways began where `since_start`.
[[nodiscard]] Table SloTable(const proto::AdminReply& reply, bool since_start);
// "alpha      2 at node-a": a line for each member that orders functions by their SLOs.
[[nodiscard]] std::string AlphaLines(const proto::AdminReply& reply);
// One request: what it waited for, in lines with bars.
[[nodiscard]] std::string RequestDetails(const proto::RequestTimeline& request, const Style& style);
// When the requests of a run's steps began and ended: a line with a bar for each. Empty where `reply` has none with an id
// that continues `run`.
[[nodiscard]] std::string StepsChart(const proto::AdminReply& reply, std::string_view run,
                                     const Style& style);

struct PriceBook;
// `prices`: adds what it costs; null: it does not.
[[nodiscard]] Table UsageTable(const proto::AdminReply& reply, proto::ListUsage::By by,
                               const PriceBook* prices);
// The exact amounts, with a header.
[[nodiscard]] std::string UsageCsv(const proto::AdminReply& reply, const PriceBook* prices);
// The amounts as `--json` prints them (64-bit numbers are strings), each with its `cost`, and the currency.
[[nodiscard]] std::string UsageJson(const proto::AdminReply& reply, const PriceBook& prices);

// One line: time, who, what, text.
[[nodiscard]] std::string EventLine(const proto::Event& event, const Style& style);
// Where it ran and what its time was spent on. `waited` is what the shell measured.
[[nodiscard]] std::string ReplyLine(const proto::InferReply& reply, Duration waited);

}  // namespace troupe::shell
