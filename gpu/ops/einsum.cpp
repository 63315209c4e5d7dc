// Einsum: any number of terms, repeated labels, an ellipsis, implicit or explicit output.
#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/op_support.hpp"

namespace troupe::gpu {
namespace {

// Labels are letters; the dimensions of an ellipsis are the numbers from 0, counted from its last.
using Labels = std::vector<int>;

absl::StatusOr<Labels> ReadTerm(const StepContext& ctx, const std::string& term, std::size_t ellipsis_rank) {
  Labels labels;
  for (std::size_t i = 0; i < term.size(); ++i) {
    const char c = term[i];
    if (c == ' ') continue;
    if (c == '.') {
      if (term.compare(i, 3, "...") != 0) return ctx.Error("an ellipsis has three dots");
      for (std::size_t e = ellipsis_rank; e-- > 0;) labels.push_back(static_cast<int>(e));
      i += 2;
    } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      labels.push_back(c);
    } else {
      return ctx.Error(absl::StrCat("the equation has a '", std::string(1, c), "'"));
    }
  }
  return labels;
}

struct Contraction {
  Shape out;
  Shape summed;
  std::vector<Shape> out_strides;  // of each input, for each dimension of the output
  std::vector<Shape> sum_strides;
};

std::size_t LettersOf(const std::string& term) {
  return static_cast<std::size_t>(
      std::count_if(term.begin(), term.end(), [](char c) { return c != '.' && c != ' '; }));
}

// The output's labels when the equation has no arrow: the ellipsis, then every letter that stands once,
// sorted.
Labels ImplicitOutput(const std::vector<Labels>& terms, std::size_t ellipsis_rank) {
  std::map<int, int> counts;
  for (const Labels& term : terms) {
    for (int label : term) ++counts[label];
  }
  Labels out;
  for (std::size_t e = ellipsis_rank; e-- > 0;) out.push_back(static_cast<int>(e));
  for (const auto& [label, count] : counts) {
    if (label >= 'A' && count == 1) out.push_back(label);
  }
  return out;
}

absl::StatusOr<Contraction> ReadContraction(const StepContext& ctx, Infos in) {
  const std::string equation = ctx.Text("equation", "");
  if (equation.size() > 1024) return ctx.Error("the equation is too long");
  const std::vector<std::string> sides = absl::StrSplit(equation, "->");
  if (sides.empty() || sides.size() > 2) return ctx.Error("the equation has more than one arrow");
  const std::vector<std::string> terms = absl::StrSplit(sides[0], ',');
  if (terms.size() != in.size())
    return ctx.Error(absl::StrCat("'", equation, "' for ", in.size(), " inputs"));
  std::size_t ellipsis_rank = 0;
  std::vector<Labels> labels;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const std::size_t letters = LettersOf(terms[i]);
    const std::size_t rank = in[i].shape.size();
    const bool dots = terms[i].find('.') != std::string::npos;
    if (letters > rank || (!dots && letters != rank)) {
      return ctx.Error(absl::StrCat("term '", terms[i], "' does not fit ", FormatShape(in[i].shape)));
    }
    if (rank - letters >= 'A') return ctx.Error("too many dimensions");
    ellipsis_rank = std::max(ellipsis_rank, rank - letters);
    TROUPE_ASSIGN_OR_RETURN(Labels term, ReadTerm(ctx, terms[i], rank - letters));
    if (term.size() != rank) return ctx.Error("a term has two ellipses");
    labels.push_back(std::move(term));
  }
  std::map<int, std::int64_t> sizes;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    for (std::size_t d = 0; d < labels[i].size(); ++d) {
      std::int64_t& size = sizes.try_emplace(labels[i][d], 1).first->second;
      const std::int64_t dim = in[i].shape[d];
      if (size != 1 && dim != 1 && size != dim)
        return ctx.Error(absl::StrCat("'", equation, "': dimensions differ"));
      if (dim != 1) size = dim;
    }
  }
  Labels out = ImplicitOutput(labels, ellipsis_rank);
  if (sides.size() == 2) {
    TROUPE_ASSIGN_OR_RETURN(out, ReadTerm(ctx, sides[1], ellipsis_rank));
  }
  Contraction plan;
  Labels summed;
  for (int label : out) {
    const auto size = sizes.find(label);
    if (size == sizes.end() || std::count(out.begin(), out.end(), label) != 1) {
      return ctx.Error(
          absl::StrCat("'", equation, "': the output has a label twice, or one that no input has"));
    }
    plan.out.push_back(size->second);
  }
  for (const auto& [label, size] : sizes) {
    if (std::find(out.begin(), out.end(), label) != out.end()) continue;
    summed.push_back(label);
    plan.summed.push_back(size);
  }
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const Shape own = RowMajorStrides(in[i].shape);
    const auto strides = [&](const Labels& wanted) {  // a repeated label walks the diagonal
      Shape result(wanted.size(), 0);
      for (std::size_t d = 0; d < labels[i].size(); ++d) {
        const auto at = std::find(wanted.begin(), wanted.end(), labels[i][d]);
        if (at != wanted.end() && in[i].shape[d] != 1)
          result[static_cast<std::size_t>(at - wanted.begin())] += own[d];
      }
      return result;
    };
    plan.out_strides.push_back(strides(out));
    plan.sum_strides.push_back(strides(summed));
  }
  return plan;
}

Inferred InferEinsum(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, in.empty() ? 1 : in.size(), 16, kNumberTypes));
  for (const ValueInfo& info : in) {
    if (info.type != in[0].type) return ctx.Error("the inputs have different types");
  }
  TROUPE_ASSIGN_OR_RETURN(Contraction plan, ReadContraction(ctx, in));
  if (auto count = CountElements(plan.summed); !count.ok())
    return ctx.Error(std::string(count.status().message()));
  return OneValue(ctx, in[0].type, std::move(plan.out));
}

// Moves to the next index of `box`, and every offset with it.
void Advance(const Shape& box, const std::vector<Shape>& strides, Shape& index, Shape& offsets) {
  for (std::size_t d = box.size(); d-- > 0;) {
    for (std::size_t i = 0; i < offsets.size(); ++i) offsets[i] += strides[i][d];
    if (++index[d] < box[d]) return;
    for (std::size_t i = 0; i < offsets.size(); ++i) offsets[i] -= strides[i][d] * box[d];
    index[d] = 0;
  }
}

template <class T>
void Evaluate(const Contraction& plan, In in, TensorView& out) {
  using W =
      typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<T>>::type;
  const std::int64_t results = Product(plan.out);
  const std::int64_t terms = Product(plan.summed);
  Shape out_index(plan.out.size(), 0);
  Shape bases(in.size(), 0);
  Shape sum_index(plan.summed.size(), 0);
  for (std::int64_t r = 0; r < results; ++r) {
    Shape offsets = bases;
    std::fill(sum_index.begin(), sum_index.end(), 0);
    W sum = 0;
    for (std::int64_t t = 0; t < terms; ++t) {
      W product = 1;
      for (std::size_t i = 0; i < in.size(); ++i) product *= static_cast<W>(Data<T>(in[i])[offsets[i]]);
      sum += product;
      Advance(plan.summed, plan.sum_strides, sum_index, offsets);
    }
    MutableData<T>(out)[r] = static_cast<T>(sum);
    Advance(plan.out, plan.out_strides, out_index, bases);
  }
}

Made MakeEinsum(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(Contraction plan, ReadContraction(ctx, in));
  return MakeKernel([plan = std::move(plan)](In in, Out out, std::byte*) {
    ForWideType(in[0].type, [&](auto zero) {
      Evaluate<decltype(zero)>(plan, in, out[0]);
      return 0;
    });
    return absl::OkStatus();
  });
}

constexpr Operator kOperators[] = {
    {.name = "Einsum",
     .min_opset = 12,
     .max_opset = kNewestOpset,
     .infer = &InferEinsum,
     .make = &Widened<&MakeEinsum>,
     .types = kNumberTypes},
};

}  // namespace

std::span<const Operator> EinsumOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
