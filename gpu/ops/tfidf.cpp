// TfIdfVectorizer: counts which sequences (n-grams) of whole numbers or texts of a pool stand in a row.
#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/ops/attributes.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/table_limits.hpp"
#include "gpu/ops/texts.hpp"

namespace troupe::gpu {
namespace {

constexpr TypeSet kGramTypes = kIndexTypes | kTextType;
// Gaps between the parts of a sequence; each takes a pass over the row.
constexpr std::int64_t kMostSkips = 1024;

// What the attributes say, checked.
struct GramLimits {
  std::int64_t shortest = 0;
  std::int64_t longest = 0;
  std::int64_t skips = 0;
  std::int64_t width = 0;  // of a row of the output
  bool counts = false;     // else 1 for what is there
  bool weighs = false;
};

// The pool: a tree of the parts of its sequences. A sequence ends where a node has an index.
class GramTree {
 public:
  static constexpr std::int32_t kRoot = 0;
  static constexpr std::int32_t kNowhere = -1;

  GramTree() : nodes_(1) {}
  [[nodiscard]] std::int32_t Child(std::int32_t node, std::int64_t part) const {
    const auto found = children_.find({node, part});
    return found == children_.end() ? kNowhere : found->second;
  }
  std::int32_t AddChild(std::int32_t node, std::int64_t part) {
    const auto [at, added] = children_.try_emplace({node, part}, static_cast<std::int32_t>(nodes_.size()));
    if (added) nodes_.emplace_back();
    return at->second;
  }
  struct End {
    std::int64_t index = -1;
    float weight = 1;
  };
  [[nodiscard]] const End& end(std::int32_t node) const { return nodes_[static_cast<std::size_t>(node)]; }
  void SetEnd(std::int32_t node, End end) { nodes_[static_cast<std::size_t>(node)] = end; }

 private:
  absl::flat_hash_map<std::pair<std::int32_t, std::int64_t>, std::int32_t> children_;
  std::vector<End> nodes_;
};

struct GramPool {
  absl::flat_hash_map<std::string, std::int64_t> numbers;  // of texts
  GramTree tree;
};

std::size_t PoolSize(const StepContext& ctx) {
  return std::max(IntList(ctx, "pool_int64s").size(), TextList(ctx, "pool_strings").size());
}

absl::Status CheckPool(const StepContext& ctx, const GramLimits& limits) {
  const auto counts = IntList(ctx, "ngram_counts");
  const std::size_t pool = PoolSize(ctx);
  if (IntList(ctx, "pool_int64s").empty() == TextList(ctx, "pool_strings").empty())
    return ctx.Error("wants a pool either in 'pool_int64s' or in 'pool_strings'");
  if (pool > static_cast<std::size_t>(kMaxTabulated))
    return ctx.Error(absl::StrCat("has a pool of ", pool, " parts, at most ", kMaxTabulated, " are taken"));
  if (counts.empty() || counts[0] != 0 || static_cast<std::int64_t>(counts.size()) < limits.longest)
    return ctx.Error(absl::StrCat("has ", counts.size(),
                                  " ngram_counts, which begin with 0 and are at least ", limits.longest));
  std::size_t grams = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::int64_t end = i + 1 < counts.size() ? counts[i + 1] : static_cast<std::int64_t>(pool);
    if (counts[i] < 0 || end < counts[i] || end > static_cast<std::int64_t>(pool))
      return ctx.Error("has ngram_counts that do not ascend within the pool");
    const auto size = static_cast<std::int64_t>(i) + 1;
    if ((end - counts[i]) % size != 0)
      return ctx.Error(absl::StrCat("has ", end - counts[i], " parts for sequences of ", size));
    grams += static_cast<std::size_t>((end - counts[i]) / size);
  }
  TROUPE_RETURN_IF_ERROR(WantLength(ctx, "ngram_indexes", IntList(ctx, "ngram_indexes").size(), grams));
  const auto weights = FloatList(ctx, "weights").size();
  return weights == 0 ? absl::OkStatus() : WantLength(ctx, "weights", weights, grams);
}

absl::StatusOr<GramLimits> ReadLimits(const StepContext& ctx) {
  GramLimits limits;
  limits.shortest = ctx.Int("min_gram_length", 0);
  limits.longest = ctx.Int("max_gram_length", 0);
  limits.skips = ctx.Int("max_skip_count", -1);
  if (limits.shortest < 1 || limits.longest < limits.shortest || limits.skips < 0 ||
      limits.skips > kMostSkips)
    return ctx.Error(absl::StrCat("has sequences of ", limits.shortest, " to ", limits.longest, " with ",
                                  limits.skips, " skips; lengths begin with 1, and at most ", kMostSkips,
                                  " skips are taken"));
  const std::string mode = ctx.Text("mode", "");
  if (mode != "TF" && mode != "IDF" && mode != "TFIDF")
    return ctx.Error(absl::StrCat("has the mode '", mode, "', expected TF, IDF or TFIDF"));
  limits.counts = mode != "IDF";
  limits.weighs = mode != "TF";
  TROUPE_RETURN_IF_ERROR(CheckPool(ctx, limits));
  for (const std::int64_t index : IntList(ctx, "ngram_indexes")) {
    if (index < 0 || index >= kMaxTabulated)
      return ctx.Error(absl::StrCat("has the index ", index, ", expected 0 to ", kMaxTabulated - 1));
    limits.width = std::max(limits.width, index + 1);
  }
  return limits;
}

// The attributes have been checked.
std::shared_ptr<const GramPool> ReadPool(const StepContext& ctx) {
  auto pool = std::make_shared<GramPool>();
  const auto texts = TextList(ctx, "pool_strings");
  const auto numbers = IntList(ctx, "pool_int64s");
  const auto counts = IntList(ctx, "ngram_counts");
  const auto indexes = IntList(ctx, "ngram_indexes");
  const auto weights = FloatList(ctx, "weights");
  const std::size_t parts = PoolSize(ctx);
  std::size_t gram = 0;
  for (std::size_t size = 1; size <= counts.size(); ++size) {
    const std::size_t end = size < counts.size() ? static_cast<std::size_t>(counts[size]) : parts;
    for (auto at = static_cast<std::size_t>(counts[size - 1]); at < end; at += size, ++gram) {
      std::int32_t node = GramTree::kRoot;
      for (std::size_t part = at; part < at + size; ++part)
        node = pool->tree.AddChild(
            node, texts.empty()
                      ? numbers[part]
                      : pool->numbers.try_emplace(*texts[part], std::ssize(pool->numbers)).first->second);
      pool->tree.SetEnd(node, {indexes[gram], weights.empty() ? 1 : weights[gram]});
    }
  }
  return pool;
}

// Adds what stands in one row, whose parts lie next to each other, to a row of zeros.
void CountGrams(const GramLimits& limits, const GramTree& tree, std::span<const std::int64_t> row,
                float* out) {
  const std::int64_t size = std::ssize(row);
  std::int64_t shortest = limits.shortest;
  for (std::int64_t step = 1; step <= limits.skips + 1; ++step) {
    for (std::int64_t start = 0; start + step * (shortest - 1) < size; ++start) {
      std::int32_t node = GramTree::kRoot;
      for (std::int64_t n = 1, at = start; n <= limits.longest && at < size; ++n, at += step) {
        node = tree.Child(node, row[static_cast<std::size_t>(at)]);
        if (node == GramTree::kNowhere) break;
        const GramTree::End& end = tree.end(node);
        if (n < shortest || end.index < 0) continue;
        const float one = limits.weighs ? end.weight : 1.0F;
        out[end.index] = limits.counts ? out[end.index] + one : one;
      }
    }
    // A part alone has no gap: it counts once.
    if (shortest == 1 && ++shortest > limits.longest) return;
  }
}

absl::Status JudgeVectorizer(const StepContext& ctx) {
  return ReadLimits(ctx).status();
}

Inferred InferVectorizer(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 1, kGramTypes));
  TROUPE_ASSIGN_OR_RETURN(const GramLimits limits, ReadLimits(ctx));
  if ((in[0].type == proto::BYTES) == TextList(ctx, "pool_strings").empty())
    return ctx.Error(absl::StrCat("has an input of ", proto::DataType_Name(in[0].type), ", and a pool of ",
                                  in[0].type == proto::BYTES ? "whole numbers" : "texts"));
  Shape shape = in[0].shape;
  if (shape.empty() || shape.size() > 2)
    return ctx.Error(absl::StrCat("wants a shape of [C] or [N,C], has ", FormatShape(shape)));
  shape.back() = limits.width;
  return OneValue(ctx, proto::FP32, std::move(shape));
}

Made MakeVectorizer(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(const GramLimits limits, ReadLimits(ctx));
  const std::int64_t length = in[0].shape.back();
  const std::int64_t rows = in[0].shape.size() == 2 ? in[0].shape[0] : 1;
  return MakeKernel(
      [limits, length, rows, pool = ReadPool(ctx)](In in, Out out, std::byte* scratch) {
        const std::span<std::int64_t> row(reinterpret_cast<std::int64_t*>(scratch),
                                          static_cast<std::size_t>(length));
        for (std::int64_t r = 0; r < rows; ++r) {
          for (std::int64_t c = 0; c < length; ++c) {
            if (in[0].type != proto::BYTES) {
              row[static_cast<std::size_t>(c)] = IntAt(in[0].type, in[0].data, r * length + c);
              continue;
            }
            const auto known = pool->numbers.find(AbslText(TextAt(in[0], r * length + c)));
            row[static_cast<std::size_t>(c)] = known == pool->numbers.end() ? -1 : known->second;
          }
          float* const to = MutableData<float>(out[0]) + r * limits.width;
          std::fill_n(to, limits.width, 0.0F);
          CountGrams(limits, pool->tree, row, to);
        }
        return absl::OkStatus();
      },
      Bytes(static_cast<std::uint64_t>(length) * sizeof(std::int64_t)));
}

constexpr Operator kOperators[] = {
    {.name = "TfIdfVectorizer",
     .min_opset = 9,
     .max_opset = kNewestOpset,
     .infer = &InferVectorizer,
     .make = &MakeVectorizer,
     .types = kGramTypes,
     .judge = &JudgeVectorizer},
};

}  // namespace

std::span<const Operator> VectorizerOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
