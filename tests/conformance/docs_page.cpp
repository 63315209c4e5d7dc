#include "tests/conformance/docs_page.hpp"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gpu/engine/control_steps.hpp"
#include "gpu/import/onnx_reader.hpp"
#include "gpu/ops/control_flow.hpp"
#include "gpu/ops/text_room.hpp"
#include "tests/conformance/declared.hpp"
#include "tests/conformance/docs_classic.hpp"
#include "tests/conformance/docs_fused.hpp"
#include "tests/conformance/docs_newer.hpp"

namespace troupe::gpu::conformance {
namespace {

std::string OperatorTable() {
  std::vector<const Operator*> entries = AllOperators();
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Operator* a, const Operator* b) { return a->name < b->name; });
  std::string table = "| operator | opset | types |\n|---|---|---|\n";
  for (const Operator* entry : entries) {
    if (IsClassic(std::string(entry->name))) continue;
    absl::StrAppend(&table, "| ", std::string(entry->name), " | ", std::max(entry->min_opset, kMinOpset), "-",
                    entry->max_opset, " | ", FormatTypes(entry->types), " |\n");
  }
  return table;
}

std::string ControlFlow() {
  std::string table = "## Control flow\n\n| operator | opset |\n|---|---|\n";
  for (const Operator& entry : ControlFlowOperators())
    absl::StrAppend(&table, "| ", std::string(entry.name), " | ", entry.min_opset, "-", entry.max_opset,
                    " |\n");
  return absl::StrCat(
      table,
      "\nA condition that is a constant, or follows from the shapes of a request, chooses its branch before the run: "
      "the other one is\nnot even planned. What only the run knows is decided by the run, with these rules:\n\n"
      "- **If**: both branches are planned. Their outputs have one type and as many dimensions; where sizes differ, "
      "the output is\n  planned for the larger one and the run tells its shape.\n"
      "- **Loop**: what it carries has one type and number of dimensions, and a largest shape: it may become smaller, "
      "or take its\n  final shape in the first trips. It may grow in each trip where trips and condition are known before "
      "the run, and all trips together\n  have at most 4,096 steps. Where outputs gather a part of each trip, the trip "
      "count is a constant or follows from shapes; the\n  condition may end the loop earlier. Without such outputs the trip "
      "count may be data, or absent. The parts of one output have one\n  shape. An absent condition is true at first; what "
      "the body says of it is heard even so, as onnxruntime does.\n"
      "- **Scan**: of opset 9 and above, along any axis and in both directions.\n"
      "- A loop goes round at most ",
      kMaxTrips,
      " times: a run that would go on ends with an error, and a model that always would is refused.\n"
      "  A run limit cuts a run inside a loop, too, before its next step.\n"
      "- Subgraphs lie at most ",
      kMaxSubgraphDepth,
      " deep in each other. What a subgraph reads from outside is an input of its step.\n"
      "- Sequences are not carried from trip to trip, and what a step outside made is none inside ([below](#sequences)).\n"
      "- Real GPUs run branches and few trips that are known before the run, and refuse other control flow by the step's "
      "name when they\n  prepare the model; the virtual GPU runs all.\n");
}

std::string Sequences() {
  return "## Sequences\n\n"
         "Sequences and optionals are no values of a run. The importer finds out which tensors a sequence has, and writes "
         "steps on these\ntensors for SequenceAt, SequenceInsert, SequenceErase, SequenceLength, SequenceConstruct, "
         "SequenceEmpty, SplitToSequence and\nConcatFromSequence, and for Optional, OptionalGetElement and "
         "OptionalHasElement.\n\n"
         "- A position is a constant, or follows from shapes that are known.\n"
         "- SplitToSequence without sizes, or with one for all parts, splits a dimension that is known before the run; the "
         "sizes of\n  all parts may be given for any.\n"
         "- Refused by name: what only a run knows, sequences as a model's inputs and outputs, SequenceMap, an Optional of "
         "nothing,\n  sequences that one graph makes and a graph inside it or a loop's next trip reads.\n"
         "- All sequences of a model have at most 65,536 elements.\n";
}

std::string TextTensors() {
  return absl::StrCat(
      "## Texts\n\n"
      "A tensor of strings is one of BYTES. On the CPU and on virtual GPUs; a CUDA device refuses models with them by the step's "
      "name.\n\n"
      "- What only moves elements moves texts too (those with BYTES in the table). An initialiser may be one of texts.\n"
      "- **Room.** The texts of a tensor take at most ",
      FormatBytes(kMaxTextBytes),
      ", each with a length of 4 bytes. A larger input is refused by its\n"
      "  name; a run whose steps or outputs would take more ends with INVALID_ARGUMENT. A plan has room for the "
      "next power of two of\n"
      "  an input's bytes, and for 32 bytes a text at least, so that texts of other lengths find their plan made.\n"
      "- **Cast**: a number is written with the fewest digits that read back the same, or as `NaN`, `INF` and `-INF`. A text must "
      "be a\n"
      "  number from its begin to its end (onnxruntime reads `12 apples` as 12), in the range of the type; blanks around it are read "
      "over.\n"
      "- **StringNormalizer**: letters of all languages change their case by the C library's tables (`C.UTF-8`), one by one; "
      "bytes that\n"
      "  are not UTF-8 stay. The locale is English or `C`.\n"
      "- **StringSplit** without a delimiter cuts at blanks of all kinds.\n"
      "- If, Loop and Scan may read texts and hand on none. Requests with texts are not joined to batches, and a function's state "
      "has\n"
      "  no texts. RegexFullMatch is not there.\n");
}

std::string Group(const std::string& name) {
  return name.substr(0, name.find('/'));
}

std::string Counts(const std::vector<Verdict>& verdicts) {
  std::map<std::string, std::pair<int, int>> groups;
  int run = 0;
  for (const Verdict& verdict : verdicts) {
    auto& [passing, all] = groups[Group(verdict.name)];
    ++all;
    if (!verdict.why_not.empty()) continue;
    ++passing;
    ++run;
  }
  std::string table = "| group | run and pass | all |\n|---|---|---|\n";
  for (const auto& [group, counts] : groups) {
    absl::StrAppend(&table, "| ", group, " | ", counts.first, " | ", counts.second, " |\n");
  }
  absl::StrAppend(&table, "| together | ", run, " | ", verdicts.size(), " |\n");
  return table;
}

std::string NotRun(const std::vector<Verdict>& verdicts) {
  std::map<std::string, std::vector<std::string>> reasons;
  for (const Verdict& verdict : verdicts) {
    if (!verdict.why_not.empty()) reasons[verdict.why_not].push_back(verdict.name);
  }
  std::string table = "| reason | cases | which |\n|---|---|---|\n";
  for (const auto& [reason, names] : reasons) {
    absl::StrAppend(&table, "| ", reason, " | ", names.size(), " | ", absl::StrJoin(names, ", "), " |\n");
  }
  return table;
}

}  // namespace

std::vector<Verdict> Judge(const std::vector<OnnxCase>& cases) {
  std::vector<Verdict> verdicts;
  for (const OnnxCase& test : cases) verdicts.push_back({test.name, WhyNotDeclared(test)});
  return verdicts;
}

std::string DocsPage(const std::vector<Verdict>& verdicts) {
  const std::vector<OnnxCase> cases = LoadOpsetCases();
  return absl::StrCat(
      "# ONNX: what is served\n\n"
      "Generated by `build/release/tests/onnx_conformance_test --write-docs`; a test fails when it is out of "
      "date.\n\n"
      "Models of opset ",
      kMinOpset, " to ", kMaxOpset,
      " are imported. An operator that is neither in the table nor [control flow](#control-flow) nor among the\n"
      "[fused ones](#fused-operators) is refused at import, with a list of all that are missing. The types are those of the "
      "first\ninput (of the output, where there is none); FP16, BF16 and short integers are computed in a wider type and rounded at the end.\n\n"
      "Inputs that decide a shape (Reshape's shape, Slice's bounds, axes, k) may be constants, may be "
      "computed from\n"
      "shapes, or may come at run time where the result has an upper bound. A size that grows with a shape which "
      "only the run\n"
      "knows (how many boxes NonZero found) has that shape's bound in Expand, Tile, Range, ConstantOfShape, OneHot "
      "and Resize.\n"
      "Without a bound, sizes there, pads, and axes of Squeeze and Unsqueeze must be known when the plan is made; "
      "the\n"
      "conformance run gives them as constants there. What a CUDA GPU would refuse of a file, `troupe function check` "
      "says.\n\n"
      "Dimensions of the inputs may be open, and those of one name have one size. A deployment has to find sizes that fit together: "
      "it\ntries all alike, from 1 to 512, and then one or two of them twice as large as the others (a mask as long as the past "
      "and\nthe new tokens together). A model that works with none of these is refused. Requests may have any sizes that fit.\n\n"
      "## Operators\n\n",
      OperatorTable(), "\n", TextTensors(), "\n", ControlFlow(), "\n", Sequences(), "\n", NewerOpsets(cases),
      "\n", FusedOperators(cases), "\n", ClassicModels(LoadClassicCases()),
      "\n## Conformance\n\n"
      "The data is Debian's `libonnx-testdata`. Every case within the declarations above runs and must pass "
      "(floats:\n"
      "rtol 1e-3, atol 1e-5; integers: equal).\n\n",
      Counts(verdicts), "\n## Not run\n\n", NotRun(verdicts));
}

}  // namespace troupe::gpu::conformance
