// YAML from outside: workflows (first byte even), and the file of --config (odd).
#include <algorithm>
#include <string>
#include <string_view>

#include "actors/daemon/config.hpp"
#include "base/check.hpp"
#include "cluster/function_table.hpp"
#include "cluster/workflow_parser.hpp"
#include "cluster/workflow_validator.hpp"

namespace {

using namespace troupe;

cluster::FunctionTable Functions() {
  cluster::FunctionTable table;
  for (const char* name : {"f", "g"}) {
    proto::FunctionRecord record;
    record.mutable_key()->set_name(name);
    record.mutable_key()->set_version("1");
    for (auto* tensor : {record.add_inputs(), record.add_outputs()}) {
      tensor->set_name(tensor == &record.inputs(0) ? "x" : "y");
      tensor->set_type(proto::FP32);
      tensor->add_shape(-1);
      tensor->add_shape(4);
    }
    table.Put(record);
  }
  return table;
}

void Workflow(std::string_view text) {
  static const cluster::FunctionTable& functions = *new cluster::FunctionTable(Functions());
  const bool accepted = cluster::CheckWorkflow(text, functions).ok();
  const auto spec = cluster::ParseWorkflow(text, {.max_steps = 50, .max_inputs = 50});
  TROUPE_CHECK(!accepted || cluster::ParseWorkflow(text).ok(), "what is accepted can be read");
  if (!spec.ok()) return;
  TROUPE_CHECK(spec->steps_size() <= 50, "a workflow has no more steps than it may have");
  const auto record = cluster::ValidateWorkflow(*spec, functions);
  TROUPE_CHECK(!record.ok() || record->outputs_size() == spec->outputs_size(), "each output has its type");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data + 1), size - 1);
  if (data[0] % 2 == 0) {
    Workflow(text);
  } else {
    actors::DaemonConfig config;
    (void)actors::ApplyConfig(text, "config.yaml", config);
  }
  return 0;
}
