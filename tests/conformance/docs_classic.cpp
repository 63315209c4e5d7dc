#include "tests/conformance/docs_classic.hpp"

#include <algorithm>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gpu/import/classic_models.hpp"
#include "gpu/ops/operator.hpp"
#include "tests/conformance/declared.hpp"

namespace troupe::gpu::conformance {
namespace {

struct Note {
  std::string_view name;
  std::string_view versions;
  std::string_view what;
};
constexpr Note kNotes[] = {
    {"ArrayFeatureExtractor", "1", ""},
    {"Binarizer", "1", ""},
    {"CategoryMapper", "1", "whole numbers and texts, to either"},
    {"FeatureVectorizer", "1", "inputs of the sizes that `inputdimensions` says"},
    {"Imputer", "1", ""},
    {"LabelEncoder", "1, 2, 4", "numbers and texts, to either; a key that is NaN is found"},
    {"LinearClassifier", "1", ""},
    {"LinearRegressor", "1", ""},
    {"Normalizer", "1", ""},
    {"OneHotEncoder", "1", "whole numbers or texts"},
    {"SVMClassifier", "1", "with support vectors"},
    {"SVMRegressor", "1", "with support vectors, and without a `post_transform`"},
    {"Scaler", "1", ""},
    {"TreeEnsemble", "5", "sets of members too"},
    {"TreeEnsembleClassifier", "1, 3", ""},
    {"TreeEnsembleRegressor", "1, 3", "every `aggregate_function`"},
    {"ZipMap", "1", "as tensors, see below"},
};

std::string Table() {
  std::string table = "| operator | versions | types | what |\n|---|---|---|---|\n";
  std::vector<const Operator*> entries = AllOperators();
  for (const Note& note : kNotes) {
    const std::string name = absl::StrCat(kClassicDomain, ".", std::string(note.name));
    const auto entry = std::ranges::find(entries, name, &Operator::name);
    absl::StrAppend(&table, "| ", std::string(note.name), " | ", std::string(note.versions), " | ",
                    entry == entries.end() ? "(not in the table)" : FormatTypes((*entry)->types), " | ",
                    std::string(note.what), " |\n");
  }
  return table;
}

}  // namespace

bool IsClassic(const std::string& name) {
  return absl::StartsWith(name, absl::StrCat(kClassicDomain, "."));
}

std::string ClassicModels(const std::vector<OnnxCase>& cases) {
  const auto exports = std::ranges::count_if(
      cases, [](const OnnxCase& test) { return absl::StrContains(test.name, "export_"); });
  return absl::StrCat(
      "## Classic models\n\n"
      "Operators of the domain `ai.onnx.ml`, versions 1 to 5, as scikit-learn, LightGBM and XGBoost are "
      "exported:\n\n",
      Table(),
      "\nOn the CPU and on virtual GPUs; a CUDA device refuses models with them by name, as it does other "
      "operators that\n"
      "have no CUDA kernel. A model that has only these operators need not say which opset of ONNX it uses.\n\n"
      "- **Maps.** A ZipMap at the end of a model becomes tensors. The output keeps its name and has the "
      "values, a row for\n"
      "  each item. A second output NAME`.keys` of the same shape has the keys, whole numbers or texts, so that "
      "a row of the\n"
      "  two is one map.\n"
      "- **Texts.** A classifier with `classlabels_strings` tells its labels as texts (BYTES).\n"
      "- **Scores.** As onnxruntime computes them: a single score is left as it is by every `post_transform` "
      "but PROBIT, and\n"
      "  PROBIT is Winitzki's approximation. Refused where onnxruntime's answer depends on its internals: "
      "PROBIT of one score\n"
      "  for two classes, and base values of another number than there are scores. Where two classes both have "
      "weights, the\n"
      "  label is that of the greater score (onnxruntime answers 1 or 0 whatever the labels are).\n"
      "- **Trees** are judged at import: a child outside its tree, a node that two lead to, a cycle, a node that "
      "no root leads\n"
      "  to, weights of what is not a leaf, and lists of other lengths are errors that name the node. A "
      "missing value is NaN,\n"
      "  and goes the way that `nodes_missing_value_tracks_true` says. FP64 and whole numbers are compared in "
      "FP64. The\n"
      "  scores of a row do not depend on the batch that it comes in, nor on the threads.\n\n"
      "`tests/conformance/opsets` has ",
      cases.size() - static_cast<std::size_t>(exports), " cases of one operator and ", exports,
      " models of the structure that exporters write, with\n"
      "onnxruntime's outputs (`classic_cases.py`); `onnx_opsets_test` runs them, too.\n");
}

}  // namespace troupe::gpu::conformance
