#include "node/requests/batch_terms.hpp"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "proto/open_dimension.hpp"

namespace troupe::node {

namespace {

using Specs = google::protobuf::RepeatedPtrField<proto::TensorSpec>;

bool OnlyRowsOpen(const Specs& specs) {
  return !specs.empty() && std::ranges::all_of(specs, [](const proto::TensorSpec& spec) {
    const auto& shape = spec.shape();
    return spec.type() != proto::BYTES && proto::LeadingIsOpen(spec) &&
           std::all_of(shape.begin() + 1, shape.end(), [](std::int64_t size) { return size > 0; });
  });
}

bool Matches(const proto::TensorSpec& given, const proto::TensorSpec& declared) {
  return given.name() == declared.name() && given.type() == declared.type() &&
         given.shape_size() == declared.shape_size() &&
         std::equal(given.shape().begin() + 1, given.shape().end(), declared.shape().begin() + 1);
}

}  // namespace

std::uint32_t MostRows(const proto::FunctionRecord& function, const BatchingRules& rules) {
  if (!rules.Joins() || !function.state().empty() || function.run_limit_ns() > 0 ||
      !OnlyRowsOpen(function.inputs()) || !OnlyRowsOpen(function.outputs()))
    return 1;
  const std::uint32_t asked =
      function.sharing().max_batch() == 0 ? rules.most : function.sharing().max_batch();
  return std::bit_floor(std::min(asked, kMostBatch));
}

BatchTerms BatchTermsOf(const proto::FunctionRecord& function, const proto::SubmitRequest& request,
                        const BatchingRules& rules) {
  BatchTerms terms;
  terms.most = MostRows(function, rules);
  if (terms.most < 2 || request.inputs_size() != function.inputs_size()) return terms;
  std::int64_t rows = 0;
  for (int i = 0; i < request.inputs_size(); ++i) {
    const proto::TensorSpec& spec = request.inputs(i).spec();
    if (!Matches(spec, function.inputs(i)) || (i > 0 && spec.shape(0) != rows)) return terms;
    rows = spec.shape(0);
    terms.inlined += Bytes(request.inputs(i).data().inlined().size());
  }
  if (rows < 1 || rows >= terms.most) return terms;
  terms.rows = static_cast<std::uint32_t>(rows);
  terms.kind = absl::StrCat(function.key().version(), "/", static_cast<int>(function.precision()));
  return terms;
}

}  // namespace troupe::node
