#include "tests/conformance/docs_newer.hpp"

#include <map>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "gpu/import/onnx_reader.hpp"

namespace troupe::gpu::conformance {
namespace {

struct Change {
  std::string_view operators;
  int since;
  std::string_view what;
};
constexpr Change kChanges[] = {
    {"ReduceL1, ReduceL2, ReduceLogSum, ReduceLogSumExp, ReduceMax, ReduceMean, ReduceMin, ReduceProd, "
     "ReduceSumSquare",
     18, "axes as an input, `noop_with_empty_axes`"},
    {"Split", 18, "`num_outputs`; the last part may be shorter"},
    {"Pad", 18, "axes as an input; mode `wrap` from 19 on"},
    {"Resize", 18,
     "`antialias`, `axes`, `keep_aspect_ratio_policy`; `half_pixel_symmetric` from 19 on; not: `antialias` with "
     "`tf_crop_and_resize`"},
    {"ScatterElements, ScatterND", 18, "reductions `max` and `min`"},
    {"BitwiseAnd, BitwiseNot, BitwiseOr, BitwiseXor, CenterCropPad, Col2Im, Mish", 18, "new"},
    {"GroupNormalization", 18, "new; scale and bias for each group, from 21 on for each channel"},
    {"LpPool", 18, "dilations"},
    {"AveragePool", 19, "dilations"},
    {"QuantizeLinear, DequantizeLinear", 19,
     "FP16 and BF16; from 21 on INT16, UINT16, `block_size` and `output_dtype`"},
    {"DFT", 20, "the axis as an input"},
    {"AffineGrid, Gelu", 20, "new; Gelu also with `approximate` = `tanh`"},
    {"GridSample", 20, "volumes; modes `linear` and `cubic`; not: `cubic` in volumes"},
    {"ReduceMax, ReduceMin", 20, "truth values"},
    {"Attention, RMSNormalization, RotaryEmbedding", 23,
     "new; Attention caps scores before it masks them, as onnxruntime does"},
};

std::string Changes() {
  std::string table = "| operator | from opset | what |\n|---|---|---|\n";
  for (const Change& change : kChanges) {
    absl::StrAppend(&table, "| ", std::string(change.operators), " | ", change.since, " | ",
                    std::string(change.what), " |\n");
  }
  return table;
}

std::string Counts(const std::vector<OnnxCase>& cases) {
  struct Row {
    int operators = 0;
    int networks = 0;
  };
  std::map<std::int64_t, Row> rows;
  Row all;
  for (const OnnxCase& test : cases) {
    if (IsFused(test)) continue;
    const bool network = IsNetwork(test);
    Row& row = rows[test.model.opset_import(0).version()];
    ++(network ? row.networks : row.operators);
    ++(network ? all.networks : all.operators);
  }
  std::string table = "| opset | cases of one operator | networks |\n|---|---|---|\n";
  for (const auto& [opset, row] : rows)
    absl::StrAppend(&table, "| ", opset, " | ", row.operators, " | ", row.networks, " |\n");
  absl::StrAppend(&table, "| together | ", all.operators, " | ", all.networks, " |\n");
  return table;
}

}  // namespace

std::string NewerOpsets(const std::vector<OnnxCase>& cases) {
  return absl::StrCat(
      "## Opsets 18 to ", kMaxOpset,
      "\n\n"
      "What these sets changed, and is computed:\n\n",
      Changes(),
      "\nElement types FLOAT8*, FLOAT4E2M1, INT4, UINT4 and COMPLEX* are refused by their name wherever they stand, "
      "and so\n"
      "are DeformConv and operators on strings and images. Functions that a model brings along become "
      "their\n"
      "nodes, where they are of the model's opset. Weights in files beside a model are sent by `troupe function "
      "deploy`.\n\n"
      "ONNX's data of Debian ends before these sets. `tests/conformance/opsets` has cases of them, and networks as "
      "exporters\n"
      "write them; `make.py` there asks onnxruntime for the outputs (where onnxruntime refuses a case, NumPy computes "
      "them from\n"
      "the definition). `onnx_opsets_test` runs each twice: as the file has it, and as a deployment changes and packs "
      "it\n"
      "(rtol 1e-3, networks 1e-4; atol 1e-5).\n\n",
      Counts(cases));
}

}  // namespace troupe::gpu::conformance
