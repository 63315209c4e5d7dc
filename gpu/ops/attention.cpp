// Attention (opset 23): softmax(cap(scale * Q K') + mask) V over heads, with grouped queries and a cache of past keys
// and values. The cap comes before the mask, as the standard was corrected to have it and onnxruntime computes it.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "gpu/ops/activation.hpp"
#include "gpu/ops/attention_blocks.hpp"
#include "gpu/ops/attention_rows.hpp"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/op_support.hpp"
#include "gpu/ops/parallel_ranges.hpp"

namespace troupe::gpu {
namespace {

constexpr std::size_t kMask = 3;
constexpr std::size_t kPastKey = 4;
constexpr std::size_t kPastValue = 5;
// Each has scores of its own in scratch memory.
constexpr std::int64_t kLanes = 16;
// From so many queries on, two products of matrices are quicker than a pass over the keys for each query.
constexpr std::int64_t kLeastRowsOfBlock = 8;
// At a time, in scratch memory: 16 MiB.
constexpr std::int64_t kMostScores = std::int64_t{1} << 22;

// A tensor as [batch, heads, rows, length], whichever way it lies.
struct Heads {
  std::int64_t batch = 0, heads = 0, rows = 0, length = 0;
  bool flat = false;  // [batch, rows, heads * length]

  [[nodiscard]] std::int64_t stride() const { return flat ? heads * length : length; }
  [[nodiscard]] std::int64_t At(std::int64_t b, std::int64_t h) const {
    return flat ? (b * rows * heads + h) * length : (b * heads + h) * rows * length;
  }
  [[nodiscard]] Shape shape() const {
    return flat ? Shape{batch, rows, heads * length} : Shape{batch, heads, rows, length};
  }
};

struct AttentionForm {
  Heads query, key, value;
  std::int64_t past = 0;   // rows of the cache
  std::int64_t total = 0;  // rows of the cache and of the keys
  Shape mask;              // strides of 4 dimensions, 0 where the mask is stretched; empty: none
  bool causal = false;
  float scale = 1;
  float softcap = 0;  // 0: none
  std::int64_t shown = 0;

  [[nodiscard]] Heads result() const {
    return {query.batch, query.heads, query.rows, value.length, query.flat};
  }
};

absl::StatusOr<Heads> ReadHeads(const StepContext& ctx, Infos in, std::size_t index, const char* attribute) {
  const Shape& shape = in[index].shape;
  if (shape.size() == 4) return Heads{shape[0], shape[1], shape[2], shape[3], false};
  const std::int64_t heads = ctx.Int(attribute, 0);
  if (shape.size() != 3 || heads < 1 || shape[2] % heads != 0) {
    return ctx.Error(
        absl::StrCat("input ", index, " ", FormatShape(shape),
                     " is neither [batch, heads, length, size] nor [batch, length, heads * size] of ",
                     attribute, " ", heads));
  }
  return Heads{shape[0], heads, shape[1], shape[2] / heads, true};
}

absl::Status CheckHeads(const StepContext& ctx, const AttentionForm& form) {
  const Heads& q = form.query;
  const Heads& k = form.key;
  const Heads& v = form.value;
  const bool fits = q.flat == k.flat && k.flat == v.flat && q.batch == k.batch && k.batch == v.batch &&
                    k.heads == v.heads && k.rows == v.rows && q.length == k.length && k.heads > 0 &&
                    q.heads % k.heads == 0;
  if (fits) return absl::OkStatus();
  return ctx.Error(absl::StrCat("query ", FormatShape(q.shape()), ", key ", FormatShape(k.shape()),
                                " and value ", FormatShape(v.shape()), " do not belong together"));
}

absl::Status ReadPast(const StepContext& ctx, Infos in, AttentionForm& form) {
  if (Present(in, kPastKey) != Present(in, kPastValue))
    return ctx.Error("past_key and past_value come together");
  if (!Present(in, kPastKey)) return absl::OkStatus();
  const Shape& keys = in[kPastKey].shape;
  const Shape& values = in[kPastValue].shape;
  if (keys.size() == 4) form.past = keys[2];
  if (keys != Shape{form.key.batch, form.key.heads, form.past, form.key.length} ||
      values != Shape{form.key.batch, form.key.heads, form.past, form.value.length}) {
    return ctx.Error(absl::StrCat("past_key ", FormatShape(keys), " and past_value ", FormatShape(values),
                                  " do not fit key ", FormatShape(form.key.shape())));
  }
  return absl::OkStatus();
}

absl::Status ReadMask(const StepContext& ctx, Infos in, AttentionForm& form) {
  if (!Present(in, kMask)) return absl::OkStatus();
  const Shape whole = {form.query.batch, form.query.heads, form.query.rows, form.total};
  const auto both = BroadcastShapes(whole, in[kMask].shape);
  if (!both.ok() || *both != whole) {
    return ctx.Error(absl::StrCat("attn_mask ", FormatShape(in[kMask].shape), " does not broadcast to ",
                                  FormatShape(whole)));
  }
  const Shape own = RowMajorStrides(in[kMask].shape);
  form.mask.assign(4, 0);
  for (std::size_t d = 0; d < own.size(); ++d)
    if (in[kMask].shape[d] != 1) form.mask[4 - own.size() + d] = own[d];
  return absl::OkStatus();
}

absl::Status CheckAttentionTypes(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 3, 6, kFloatTypes));
  for (std::size_t i = 1; i < in.size(); ++i) {
    const bool truth = i == kMask && in[i].type == proto::BOOL;
    if (!in[i].absent() && in[i].type != in[0].type && !truth)
      return ctx.Error(absl::StrCat("input ", i, " has type ", proto::DataType_Name(in[i].type),
                                    ", wants that of the query",
                                    i == kMask ? " or BOOL; put a Cast before it" : ""));
  }
  return absl::OkStatus();
}

absl::StatusOr<AttentionForm> ReadAttention(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckAttentionTypes(ctx, in));
  AttentionForm form;
  TROUPE_ASSIGN_OR_RETURN(form.query, ReadHeads(ctx, in, 0, "q_num_heads"));
  TROUPE_ASSIGN_OR_RETURN(form.key, ReadHeads(ctx, in, 1, "kv_num_heads"));
  TROUPE_ASSIGN_OR_RETURN(form.value, ReadHeads(ctx, in, 2, "kv_num_heads"));
  TROUPE_RETURN_IF_ERROR(CheckHeads(ctx, form));
  TROUPE_RETURN_IF_ERROR(ReadPast(ctx, in, form));
  form.total = form.past + form.key.rows;
  TROUPE_RETURN_IF_ERROR(ReadMask(ctx, in, form));
  form.causal = ctx.Int("is_causal", 0) != 0;
  form.softcap = ctx.Float("softcap", 0);
  const float size = static_cast<float>(std::max<std::int64_t>(form.query.length, 1));
  form.scale = ctx.Float("scale", 1 / std::sqrt(size));
  form.shown = ctx.Int("qk_matmul_output_mode", 0);
  if (form.shown < 0 || form.shown > 3)
    return ctx.Error(absl::StrCat("qk_matmul_output_mode is ", form.shown, ", wants 0 to 3"));
  if (!(form.softcap >= 0)) return ctx.Error(absl::StrCat("softcap is ", form.softcap, ", wants 0 or more"));
  return form;
}

Inferred InferAttention(const StepContext& ctx, Infos in) {
  TROUPE_ASSIGN_OR_RETURN(const AttentionForm form, ReadAttention(ctx, in));
  const Heads& k = form.key;
  const Shape shapes[] = {form.result().shape(),
                          {k.batch, k.heads, form.total, k.length},
                          {k.batch, k.heads, form.total, form.value.length},
                          {form.query.batch, form.query.heads, form.query.rows, form.total}};
  std::vector<ValueInfo> out;
  for (int i = 0; i < std::clamp(ctx.step.outputs_size(), 1, 4); ++i) {
    TROUPE_ASSIGN_OR_RETURN(ValueInfo value, Value(ctx, in[0].type, shapes[i]));
    out.push_back(std::move(value));
  }
  return out;
}

// The cache, then what is new, as one tensor [batch, heads, past + rows, length].
template <class T>
void JoinPast(const TensorView* past, std::int64_t past_rows, const TensorView& added, const Heads& heads,
              TensorView& out) {
  T* to = MutableData<T>(out);
  for (std::int64_t i = 0; i < heads.batch * heads.heads; ++i) {
    if (past != nullptr)
      to = std::copy_n(Data<T>(*past) + i * past_rows * heads.length, past_rows * heads.length, to);
    const T* from = Data<T>(added) + heads.At(i / heads.heads, i % heads.heads);
    for (std::int64_t r = 0; r < heads.rows; ++r)
      to = std::copy_n(from + r * heads.stride(), heads.length, to);
  }
}

template <class T>
class AttentionRun {
 public:
  AttentionRun(const AttentionForm& form, const AttentionLoops<T>& loops, RowFunction exp, In in, Out out)
      : form_(form), loops_(loops), exp_(exp), in_(in), out_(out) {}

  // One row of queries, which is number `row` of [batch, heads, rows].
  void Answer(std::int64_t row, T* scores) const {
    const Heads& q = form_.query;
    const auto [b, h, s] = Place(row);
    const std::int64_t shared = h / (q.heads / form_.key.heads);
    const T* query = Data<T>(in_[0]) + q.At(b, h) + s * q.stride();
    loops_.score(Past(kPastKey, b, shared, form_.key), query, static_cast<T>(form_.scale), scores);
    loops_.score(New(1, b, shared, form_.key), query, static_cast<T>(form_.scale), scores + form_.past);
    Finish(row, scores);
    const Heads result = form_.result();
    T* out = MutableData<T>(out_[0]) + result.At(b, h) + s * result.stride();
    std::fill_n(out, result.length, T(0));
    loops_.mix(Past(kPastValue, b, shared, form_.value), scores, out);
    loops_.mix(New(2, b, shared, form_.value), scores + form_.past, out);
  }

  // Makes weights of the scores of one row of queries.
  void Finish(std::int64_t row, T* scores) const {
    Show(0, row, scores);
    if (form_.softcap > 0) Cap(scores);
    Show(1, row, scores);
    const auto [b, h, s] = Place(row);
    Mask(b, h, s, scores);
    Show(2, row, scores);
    Normalize(scores);
    Show(3, row, scores);
  }

 private:
  // [batch, head, row]
  std::array<std::int64_t, 3> Place(std::int64_t row) const {
    const Heads& q = form_.query;
    return {row / q.rows / q.heads, row / q.rows % q.heads, row % q.rows};
  }

  AttentionRows<T> Past(std::size_t input, std::int64_t b, std::int64_t h, const Heads& heads) const {
    if (!Present(in_, input)) return {};
    const T* first = Data<T>(in_[input]) + (b * heads.heads + h) * form_.past * heads.length;
    return {first, form_.past, heads.length, heads.length};
  }
  AttentionRows<T> New(std::size_t input, std::int64_t b, std::int64_t h, const Heads& heads) const {
    return {Data<T>(in_[input]) + heads.At(b, h), heads.rows, heads.stride(), heads.length};
  }

  void Mask(std::int64_t b, std::int64_t h, std::int64_t s, T* scores) const {
    constexpr T kNever = -std::numeric_limits<T>::infinity();
    if (const Shape& mask = form_.mask; !mask.empty()) {
      const std::int64_t base = b * mask[0] + h * mask[1] + s * mask[2];
      for (std::int64_t t = 0; t < form_.total; ++t) {
        const std::int64_t at = base + t * mask[3];
        if (in_[kMask].type != proto::BOOL) {
          scores[t] += Data<T>(in_[kMask])[at];
        } else if (Data<std::uint8_t>(in_[kMask])[at] == 0) {
          scores[t] = kNever;
        }
      }
    }
    // A query sees the whole cache, and of what is new nothing behind itself.
    if (form_.causal)
      for (std::int64_t t = form_.past + s + 1; t < form_.total; ++t) scores[t] = kNever;
  }

  void Cap(T* scores) const {
    const T cap = static_cast<T>(form_.softcap);
    for (std::int64_t t = 0; t < form_.total; ++t) scores[t] = cap * std::tanh(scores[t] / cap);
  }

  // A query that may see nothing gets weights of 0.
  void Normalize(T* scores) const {
    T largest = -std::numeric_limits<T>::infinity();
    for (std::int64_t t = 0; t < form_.total; ++t) largest = std::max(largest, scores[t]);
    if (largest == -std::numeric_limits<T>::infinity()) {
      std::fill_n(scores, form_.total, T(0));
      return;
    }
    for (std::int64_t t = 0; t < form_.total; ++t) scores[t] -= largest;
    Row row;
    row.n = form_.total;
    row.in[0] = row.out = reinterpret_cast<std::byte*>(scores);
    row.step[0] = 1;
    exp_(row);
    double sum = 0;
    for (std::int64_t t = 0; t < form_.total; ++t) sum += static_cast<double>(scores[t]);
    const T factor = static_cast<T>(1 / sum);
    for (std::int64_t t = 0; t < form_.total; ++t) scores[t] *= factor;
  }

  void Show(std::int64_t mode, std::int64_t row, const T* scores) const {
    if (mode != form_.shown || out_.size() < 4 || out_[3].data == nullptr) return;
    std::copy_n(scores, form_.total, MutableData<T>(out_[3]) + row * form_.total);
  }

  const AttentionForm& form_;
  const AttentionLoops<T>& loops_;
  RowFunction exp_;
  In in_;
  Out out_;
};

// The caches with what is new, where they are asked for.
template <class T>
void JoinCaches(const AttentionForm& form, In in, Out out) {
  const TensorView* const past_key = Present(in, kPastKey) ? &in[kPastKey] : nullptr;
  const TensorView* const past_value = Present(in, kPastValue) ? &in[kPastValue] : nullptr;
  if (out.size() > 1 && out[1].data != nullptr) JoinPast<T>(past_key, form.past, in[1], form.key, out[1]);
  if (out.size() > 2 && out[2].data != nullptr) JoinPast<T>(past_value, form.past, in[2], form.value, out[2]);
}

template <class T>
Made MakeByRows(const AttentionForm& form, const AttentionLoops<T>& loops, RowFunction exp) {
  const std::int64_t rows = form.query.batch * form.query.heads * form.query.rows;
  const std::uint64_t lane =
      AlignUp(Bytes(static_cast<std::uint64_t>(form.total) * sizeof(T)), Bytes(64)).count();
  return MakeKernel(
      [=](In in, Out out, std::byte* scratch) {
        const AttentionRun<T> run(form, loops, exp, in, out);
        const std::int64_t cost = rows / kLanes * form.total * (form.key.length + form.value.length);
        ParallelRanges(kLanes, cost, [&](std::int64_t first, std::int64_t last) {
          for (std::int64_t l = first; l < last; ++l) {
            T* scores = reinterpret_cast<T*>(scratch + static_cast<std::uint64_t>(l) * lane);
            for (std::int64_t r = rows * l / kLanes; r < rows * (l + 1) / kLanes; ++r) run.Answer(r, scores);
          }
        });
        JoinCaches<T>(form, in, out);
        return absl::OkStatus();
      },
      Bytes(lane * kLanes));
}

// All queries of some heads at a time. Not where keys and values are in two places, or are shared by heads.
bool FitsBlocks(const AttentionForm& form) {
  return form.past == 0 && form.query.heads == form.key.heads && form.query.rows >= kLeastRowsOfBlock &&
         form.total > 0 && form.query.length > 0 && form.value.length > 0;
}

std::int64_t HeadsAtATime(const AttentionForm& form) {
  std::int64_t heads = form.query.heads;
  while (heads > 1 && (form.query.heads % heads != 0 || heads * form.query.rows * form.total > kMostScores))
    --heads;
  return heads;
}

Made MakeByBlocks(const StepContext& ctx, const AttentionForm& form, RowFunction exp) {
  const auto steps = [](const Heads& heads) { return HeadSteps{heads.At(0, 1), heads.stride()}; };
  AttentionBlock block;
  block.heads = HeadsAtATime(form);
  block.rows = form.query.rows;
  block.keys = form.total;
  block.size = form.query.length;
  block.value_size = form.value.length;
  block.query = steps(form.query);
  block.key = steps(form.key);
  block.value = steps(form.value);
  block.result = steps(form.result());
  block.scale = form.scale;
  TROUPE_ASSIGN_OR_RETURN(AttentionBlocks made, AttentionBlocks::Make(ctx, block));
  const std::int64_t rows = block.heads * block.rows;
  const std::uint64_t scores_bytes =
      AlignUp(Bytes(static_cast<std::uint64_t>(rows * form.total) * sizeof(float)), Bytes(64)).count();
  const Bytes scratch = Bytes(scores_bytes) + made.scratch();
  return MakeKernel(
      [=, loops = FindAttentionLoops(), blocks = std::make_shared<const AttentionBlocks>(std::move(made))](
          In in, Out out, std::byte* scratch) -> absl::Status {
        const AttentionRun<float> run(form, loops, exp, in, out);
        float* scores = reinterpret_cast<float*>(scratch);
        for (std::int64_t b = 0; b < form.query.batch; ++b) {
          for (std::int64_t h = 0; h < form.query.heads; h += block.heads) {
            const auto at = [&](std::size_t input, const Heads& heads) {
              return Data<float>(in[input]) + heads.At(b, h);
            };
            TROUPE_RETURN_IF_ERROR(
                blocks->Score(at(0, form.query), at(1, form.key), scores, scratch + scores_bytes));
            const std::int64_t first_row = (b * form.query.heads + h) * block.rows;
            ParallelRanges(rows, form.total, [&](std::int64_t first, std::int64_t last) {
              for (std::int64_t r = first; r < last; ++r) run.Finish(first_row + r, scores + r * form.total);
            });
            TROUPE_RETURN_IF_ERROR(blocks->Mix(scores, at(2, form.value),
                                               MutableData<float>(out[0]) + form.result().At(b, h),
                                               scratch + scores_bytes));
          }
        }
        JoinCaches<float>(form, in, out);
        return absl::OkStatus();
      },
      scratch);
}

Made MakeAttention(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(const AttentionForm form, ReadAttention(ctx, in));
  const RowFunction exp = FindUnaryRow("Exp", in[0].type);
  if (in[0].type == proto::FP64) return MakeByRows<double>(form, FindDoubleAttentionLoops(), exp);
  if (FitsBlocks(form)) return MakeByBlocks(ctx, form, exp);
  return MakeByRows<float>(form, FindAttentionLoops(), exp);
}

constexpr Operator kOperators[] = {
    {.name = "Attention",
     .min_opset = 23,
     .max_opset = kNewestOpset,
     .infer = &InferAttention,
     .make = &FloatWidened<&MakeAttention>,
     .types = kFloatTypes},
};

}  // namespace

std::span<const Operator> AttentionOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
