#include "tests/conformance/docs_fused.hpp"

#include <map>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "gpu/import/fused_nodes.hpp"
#include "gpu/ops/operator.hpp"

namespace troupe::gpu::conformance {
namespace {

// Operators that stay as they are, and what of them is refused by name.
struct Kept {
  std::string_view op;
  std::string_view what;
};
constexpr Kept kKept[] = {
    {"SimplifiedLayerNormalization", "the default domain's, as the optimiser writes it"},
    {"com.microsoft.Attention",
     "masks [batch], [2 batch], [batch, total] and [batch, length, total]; `past`, `attention_bias`, "
     "`qkv_hidden_sizes`; not: `do_rotary`, `past_present_share_buffer`, `past_sequence_length`, masks of 4 "
     "dimensions"},
    {"com.microsoft.EmbedLayerNormalization", "all of it"},
    {"com.microsoft.FusedMatMul", "all of it"},
    {"com.microsoft.GroupQueryAttention",
     "`do_rotary`, `local_window_size`, `softcap`, packed queries, keys and values; `total_sequence_length` must be "
     "known when the plan is made; not: `position_ids`, `attention_bias`, sinks, `smooth_softmax`, quantised caches"},
    {"com.microsoft.MatMulNBits",
     "4 and 8 bits, blocks of 16 to 256, zero points packed or as floats; not: other widths, `g_idx`, "
     "`weight_prepacked`"},
    {"com.microsoft.MultiHeadAttention",
     "as Attention, and keys and values as [batch, heads, length, size]; not: packed queries, keys and values, "
     "`past_sequence_length`, `cache_indirection`, the output `qk`"},
    {"com.microsoft.QLinearAdd", "all of it"},
    {"com.microsoft.QLinearAveragePool", "all of it"},
    {"com.microsoft.QLinearConcat", "all of it"},
    {"com.microsoft.QLinearGlobalAveragePool", "all of it"},
    {"com.microsoft.QLinearLeakyRelu", "all of it"},
    {"com.microsoft.QLinearMul", "all of it"},
    {"com.microsoft.QLinearSigmoid", "all of it"},
    {"com.microsoft.QuickGelu", "all of it"},
    {"com.microsoft.RotaryEmbedding", "one position or one for each row; not: `scale`, `is_packed_batching`"},
};

std::string FullName(const onnx::NodeProto& node) {
  return node.domain().empty() ? node.op_type() : absl::StrCat(node.domain(), ".", node.op_type());
}

// How often an operator is the one of a case.
std::map<std::string, int> CasesByOperator(const std::vector<OnnxCase>& cases) {
  std::map<std::string, int> counts;
  for (const OnnxCase& test : cases)
    if (IsFused(test) && !IsNetwork(test)) ++counts[FullName(test.model.graph().node(0))];
  return counts;
}

}  // namespace

std::string FusedOperators(const std::vector<OnnxCase>& cases) {
  std::map<std::string, int> counts = CasesByOperator(cases);
  std::map<std::string, std::string> rows;
  for (const FusedNode& node : FusedNodes())
    rows[std::string(node.op)] = absl::StrCat("becomes ", std::string(node.becomes));
  for (const Kept& kept : kKept) rows[std::string(kept.op)] = std::string(kept.what);
  std::string table = "| operator | what | cases |\n|---|---|---|\n";
  int all = 0;
  for (const auto& [op, what] : rows) {
    absl::StrAppend(&table, "| ", op, " | ", what, " | ", counts[op], " |\n");
    all += counts[op];
  }
  int networks = 0;
  for (const OnnxCase& test : cases) networks += IsFused(test) && IsNetwork(test) ? 1 : 0;
  return absl::StrCat(
      "## Fused operators\n\n"
      "Files that onnxruntime's optimiser or quantisers wrote contain operators of the domain `com.microsoft`. Those "
      "that are\n"
      "a chain of standard operators become that chain at import, and run wherever its operators do; the others have "
      "kernels\n"
      "on the CPU. Attributes, inputs and outputs that are not honoured are refused by their name.\n\n",
      table,
      "\nWeights of MatMulNBits stay packed in device memory; a run unpacks them as it multiplies. Products are "
      "summed\n"
      "in FP32 whatever `accuracy_level` allows. LayerNormalization is taken at every opset, as the optimiser writes "
      "it.\n\n"
      "`tests/conformance/opsets` has ",
      all, " cases of these operators, ", counts["LayerNormalization"],
      " of LayerNormalization below opset 18, and ", networks,
      " networks:\n"
      "among them a BERT as exported and as optimised, which have to give the same to 1e-4. A CUDA device refuses by "
      "name\n"
      "the operators that have no kernel there.\n");
}

}  // namespace troupe::gpu::conformance
