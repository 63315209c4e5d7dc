// com.microsoft.GroupQueryAttention: queries of several heads share keys and values; the cache grows by what is new, which
// may be turned by its position first. Inputs: query, key, value, past_key, past_value, seqlens_k, total_sequence_length,
// cos_cache, sin_cache.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "gpu/ops/attention_core.hpp"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"

namespace troupe::gpu {
namespace {

constexpr TypeSet kTypes = TypesOf({proto::FP32, proto::FP16, proto::BF16});
constexpr int kInnerOpset = 23;

constexpr std::size_t kPastKey = 3, kPastValue = 4, kLengths = 5, kTotal = 6, kCos = 7, kSin = 8;

struct Grouped {
  std::int64_t batch = 0, rows = 0, heads = 0, kv_heads = 0, size = 0;
  std::int64_t past = 0;    // rows of the caches that come
  std::int64_t total = 0;   // of past and new ones, as the model says
  std::int64_t window = 0;  // keys that a query sees, itself among them; 0: all
  bool packed = false;      // queries, keys and values in one row each
  bool turned = false;

  // The first call: nothing is cached, and short sequences are filled up behind their end.
  [[nodiscard]] bool begins() const { return rows == total; }
  [[nodiscard]] std::int64_t present() const { return std::max(total, past); }
  [[nodiscard]] Shape queries() const { return {batch, rows, heads * size}; }
  [[nodiscard]] Shape keys() const { return {batch, rows, kv_heads * size}; }
  [[nodiscard]] Shape cache(std::int64_t length) const { return {batch, kv_heads, length, size}; }
};

absl::Status ReadHeads(const StepContext& ctx, Infos in, Grouped& g) {
  g.heads = ctx.Int("num_heads", 0);
  g.kv_heads = ctx.Int("kv_num_heads", 0);
  const Shape& q = in[0].shape;
  const bool counted = g.heads > 0 && g.kv_heads > 0 && g.kv_heads <= g.heads && g.heads % g.kv_heads == 0;
  g.packed = !Present(in, 1) && !Present(in, 2);
  const std::int64_t joined = g.packed ? g.heads + 2 * g.kv_heads : g.heads;
  bool fits = counted && q.size() == 3 && joined > 0 && q[2] > 0 && q[2] % joined == 0;
  if (fits) {
    g.batch = q[0];
    g.rows = q[1];
    g.size = q[2] / joined;
    fits =
        g.packed || (Present(in, 1) && Present(in, 2) && in[1].shape == g.keys() && in[2].shape == g.keys());
  }
  if (fits) return absl::OkStatus();
  return ctx.Error(absl::StrCat(
      "query ", FormatShape(q), Present(in, 1) ? absl::StrCat(", key ", FormatShape(in[1].shape)) : "",
      Present(in, 2) ? absl::StrCat(", value ", FormatShape(in[2].shape)) : "",
      " do not belong together with num_heads ", g.heads, " and kv_num_heads ", g.kv_heads));
}

absl::Status ReadLengths(const StepContext& ctx, Infos in, Grouped& g) {
  if (Present(in, kPastKey) != Present(in, kPastValue))
    return ctx.Error("past_key and past_value come together");
  if (Present(in, kPastKey)) {
    const Shape& past = in[kPastKey].shape;
    if (past.size() == 4) g.past = past[2];
    if (past != g.cache(g.past) || in[kPastValue].shape != past)
      return ctx.Error(absl::StrCat("past_key ", FormatShape(past), " and past_value ",
                                    FormatShape(in[kPastValue].shape), " must be [", g.batch, ",", g.kv_heads,
                                    ",length,", g.size, "]"));
  }
  if (!Present(in, kLengths) || in[kLengths].type != proto::INT32 || in[kLengths].elements() != g.batch)
    return ctx.Error(absl::StrCat("seqlens_k must be INT32[", g.batch, "]"));
  if (!Present(in, kTotal)) return ctx.Error("input 6 (total_sequence_length) is required");
  TROUPE_ASSIGN_OR_RETURN(const Shape total, RequireInts(ctx, in, kTotal, "total_sequence_length"));
  if (total.size() != 1 || total[0] < g.rows || total[0] > g.past + g.rows)
    return ctx.Error(absl::StrCat("total_sequence_length ", FormatShape(total), " must be one number from ",
                                  g.rows, " to ", g.past + g.rows, ", the new rows and those of the cache"));
  g.total = total[0];
  return absl::OkStatus();
}

absl::Status ReadTables(const StepContext& ctx, Infos in, Grouped& g) {
  g.turned = ctx.Int("do_rotary", 0) != 0;
  if (!g.turned) return absl::OkStatus();
  const bool fits = Present(in, kCos) && Present(in, kSin) && in[kCos].shape.size() == 2 &&
                    in[kSin].shape == in[kCos].shape && in[kCos].shape[1] > 0 &&
                    2 * in[kCos].shape[1] <= g.size && in[kCos].type == in[0].type &&
                    in[kSin].type == in[0].type;
  return fits ? absl::OkStatus()
              : ctx.Error(absl::StrCat("do_rotary wants cos_cache and sin_cache of [positions, at most ",
                                       g.size / 2, "] and the query's type"));
}

absl::StatusOr<Grouped> ReadGrouped(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckAttributes(ctx, {"do_rotary", "kv_num_heads", "local_window_size", "num_heads",
                                               "rotary_interleaved", "scale", "smooth_softmax", "softcap"}));
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 14, kTypes));
  for (std::size_t i = 9; i < in.size(); ++i)
    TROUPE_RETURN_IF_ERROR(RefuseInput(ctx, in, i, "position_ids, attention_bias, sinks and scales"));
  if (ctx.Int("smooth_softmax", 0) > 0)
    return ctx.Error("attribute 'smooth_softmax' is not supported; export the model without it");
  for (std::size_t i = 1; i < std::min<std::size_t>(in.size(), kLengths); ++i)
    if (!in[i].absent() && in[i].type != in[0].type)
      return ctx.Error(absl::StrCat("input ", i, " has type ", proto::DataType_Name(in[i].type),
                                    ", wants that of the query"));
  Grouped g;
  TROUPE_RETURN_IF_ERROR(ReadHeads(ctx, in, g));
  TROUPE_RETURN_IF_ERROR(ReadLengths(ctx, in, g));
  TROUPE_RETURN_IF_ERROR(ReadTables(ctx, in, g));
  g.window = std::max<std::int64_t>(ctx.Int("local_window_size", -1), 0);
  return g;
}

Inferred InferGrouped(const StepContext& ctx, Infos in) {
  TROUPE_ASSIGN_OR_RETURN(const Grouped g, ReadGrouped(ctx, in));
  if (ctx.step.outputs_size() > 3)
    return ctx.Error("output 3 (output_qk) is not supported; export the model without it");
  const Shape shapes[] = {g.queries(), g.cache(g.present()), g.cache(g.present())};
  std::vector<ValueInfo> out;
  for (int i = 0; i < std::max(ctx.step.outputs_size(), 1); ++i) {
    TROUPE_ASSIGN_OR_RETURN(ValueInfo value, Value(ctx, in[0].type, shapes[i]));
    out.push_back(std::move(value));
  }
  return out;
}

class GroupedKernel final : public Kernel {
 public:
  static Made Make(const StepContext& ctx, Infos in, Infos) {
    auto kernel = std::make_unique<GroupedKernel>();
    TROUPE_ASSIGN_OR_RETURN(const Grouped g, ReadGrouped(ctx, in));
    kernel->g_ = g;
    kernel->name_ = absl::StrCat(ctx.step.op(), " '", ctx.step.name(), "'");
    ScratchParts& parts = kernel->parts_;
    Places& at = kernel->at_;
    for (std::uint64_t* place : {&at.query, &at.plain, &at.turned, &at.result})
      *place = parts.AddFloats(Product(g.queries()));
    for (std::uint64_t& cache : at.caches) cache = parts.AddFloats(Product(g.cache(g.present())));
    at.mask = parts.AddFloats(g.batch * g.rows * g.present());
    at.ids = parts.Add(static_cast<std::uint64_t>(g.batch * g.rows) * sizeof(std::int64_t));
    TROUPE_RETURN_IF_ERROR(kernel->MakeInner(ctx, in));
    return kernel;
  }

  [[nodiscard]] Bytes scratch() const override { return parts_.size(); }

  absl::Status Run(In in, Out out, std::byte* scratch) const override {
    TROUPE_RETURN_IF_ERROR(PlaceRows(in, scratch));
    std::array<std::byte*, 2> caches{};
    for (std::size_t i = 0; i < 2; ++i) {
      const bool given = out.size() > i + 1 && out[i + 1].data != nullptr;
      caches[i] = given ? out[i + 1].data : scratch + at_.caches[i];
    }
    // Queries head by head, as the caches are.
    TROUPE_RETURN_IF_ERROR(NewRows(in, 0, scratch));
    CopyRows(At(scratch, at_.plain), {g_.rows * g_.heads * g_.size, g_.size, g_.heads * g_.size},
             {g_.batch, g_.heads, g_.rows * g_.size}, g_.rows, nullptr, At(scratch, at_.query));
    for (std::size_t i = 0; i < 2; ++i) {
      TROUPE_RETURN_IF_ERROR(NewRows(in, i + 1, scratch));
      Extend(in, i, At(scratch, at_.plain), reinterpret_cast<float*>(caches[i]));
    }
    Hide(in, At(scratch, at_.mask));
    const Shape queries = {g_.batch, g_.heads, g_.rows, g_.size};
    const std::array<TensorView, 4> inner = {
        FloatView(queries, scratch + at_.query), FloatView(g_.cache(g_.present()), caches[0]),
        FloatView(g_.cache(g_.present()), caches[1]),
        FloatView({g_.batch, 1, g_.rows, g_.present()}, scratch + at_.mask)};
    TensorView result = FloatView(queries, scratch + at_.result);
    TROUPE_RETURN_IF_ERROR(attend_->Run(inner, std::span(&result, 1), scratch + at_.attend));
    CopyRows(At(scratch, at_.result), {g_.heads * g_.rows * g_.size, g_.size, g_.rows * g_.size},
             g_.queries(), g_.heads, nullptr, MutableData<float>(out[0]));
    return absl::OkStatus();
  }

 private:
  // In scratch memory; `query` and `result` head by head, `plain` and `turned` row by row.
  struct Places {
    std::uint64_t query = 0, plain = 0, turned = 0, result = 0, mask = 0, ids = 0;
    std::array<std::uint64_t, 2> caches{};
    std::uint64_t attend = 0;  // what the inner steps need themselves
    std::array<std::uint64_t, 2> turn{};
  };
  static float* At(std::byte* scratch, std::uint64_t place) {
    return reinterpret_cast<float*>(scratch + place);
  }

  absl::Status MakeInner(const StepContext& ctx, Infos in) {
    InnerStep attend(ctx, "Attention", kInnerOpset);
    const float scale = ctx.Float("scale", 0);
    attend.SetFloat("scale", scale != 0 ? scale : 1 / std::sqrt(static_cast<float>(g_.size)));
    attend.SetFloat("softcap", ctx.Float("softcap", 0));
    const ValueInfo cache = FloatInfo(g_.cache(g_.present()));
    TROUPE_ASSIGN_OR_RETURN(
        attend_, attend.Make(std::array{FloatInfo({g_.batch, g_.heads, g_.rows, g_.size}), cache, cache,
                                        FloatInfo({g_.batch, 1, g_.rows, g_.present()})}));
    at_.attend = parts_.Add(attend_->scratch().count());
    if (!g_.turned) return absl::OkStatus();
    for (std::size_t i = 0; i < 2; ++i) {
      InnerStep turn(ctx, "RotaryEmbedding", kInnerOpset);
      turn.SetInt("interleaved", ctx.Int("rotary_interleaved", 0));
      turn.SetInt("num_heads", i == 0 ? g_.heads : g_.kv_heads);
      turn.SetInt("rotary_embedding_dim", 2 * in[kCos].shape[1]);
      ValueInfo ids;
      ids.type = proto::INT64;
      ids.shape = {g_.batch, g_.rows};
      TROUPE_ASSIGN_OR_RETURN(
          turn_[i], turn.Make(std::array{FloatInfo(i == 0 ? g_.queries() : g_.keys()),
                                         FloatInfo(in[kCos].shape), FloatInfo(in[kSin].shape), ids}));
      at_.turn[i] = parts_.Add(turn_[i]->scratch().count());
    }
    return absl::OkStatus();
  }

  // How many rows of the cache belong to sequence `b`.
  std::int64_t Cached(In in, std::int64_t b) const {
    return g_.begins() ? 0 : std::int64_t{Data<std::int32_t>(in[kLengths])[b]} + 1 - g_.rows;
  }

  // The position of each new row. Lengths come with the request.
  absl::Status PlaceRows(In in, std::byte* scratch) const {
    auto* ids = reinterpret_cast<std::int64_t*>(scratch + at_.ids);
    for (std::int64_t b = 0; b < g_.batch; ++b) {
      const std::int64_t cached = Cached(in, b);
      if (cached < 0 || cached > g_.past || cached + g_.rows > g_.total)
        return absl::InvalidArgumentError(
            absl::StrCat(name_, ": seqlens_k tells that sequence ", b, " has ",
                         Data<std::int32_t>(in[kLengths])[b], " rows before its last; with ", g_.rows,
                         " new ones it may have ", g_.rows - 1, " to ", g_.total - 1));
      for (std::int64_t s = 0; s < g_.rows; ++s) *ids++ = cached + s;
    }
    return absl::OkStatus();
  }

  // The new rows of queries (0), keys (1) or values (2), one after another, turned where they are to be.
  absl::Status NewRows(In in, std::size_t which, std::byte* scratch) const {
    const Shape shape = which == 0 ? g_.queries() : g_.keys();
    const std::int64_t heads = which == 0 ? g_.heads : g_.kv_heads;
    const std::int64_t width = g_.packed ? (g_.heads + 2 * g_.kv_heads) * g_.size : shape[2];
    const std::int64_t first =
        g_.packed && which > 0 ? (g_.heads + (which == 2 ? g_.kv_heads : 0)) * g_.size : 0;
    const float* from = Data<float>(in[g_.packed ? 0 : which]) + first;
    const bool turns = g_.turned && which < 2;
    CopyRows(from, {g_.rows * width, width, g_.size}, shape, heads, nullptr,
             At(scratch, turns ? at_.turned : at_.plain));
    if (!turns) return absl::OkStatus();
    const std::array<TensorView, 4> inner = {
        FloatView(shape, scratch + at_.turned), in[kCos], in[kSin],
        TensorView{proto::INT64, {g_.batch, g_.rows}, scratch + at_.ids}};
    TensorView result = FloatView(shape, scratch + at_.plain);
    return turn_[which]->Run(inner, std::span(&result, 1), scratch + at_.turn[which]);
  }

  // What is cached of keys (0) or values (1), then the new rows; the rest is 0.
  void Extend(In in, std::size_t which, const float* added, float* to) const {
    const std::int64_t length = g_.present();
    for (std::int64_t b = 0; b < g_.batch; ++b) {
      const std::int64_t cached = Cached(in, b);
      for (std::int64_t h = 0; h < g_.kv_heads; ++h, to += length * g_.size) {
        float* end = to;
        if (cached > 0)
          end = std::copy_n(Data<float>(in[kPastKey + which]) + (b * g_.kv_heads + h) * g_.past * g_.size,
                            cached * g_.size, end);
        for (std::int64_t s = 0; s < g_.rows; ++s)
          end = std::copy_n(added + ((b * g_.rows + s) * g_.kv_heads + h) * g_.size, g_.size, end);
        std::fill(end, to + length * g_.size, 0.0F);
      }
    }
  }

  // A query sees no key behind itself or behind its sequence's end, and none before its window.
  void Hide(In in, float* mask) const {
    for (std::int64_t b = 0; b < g_.batch; ++b) {
      for (std::int64_t s = 0; s < g_.rows; ++s, mask += g_.present()) {
        const std::int64_t length = std::int64_t{Data<std::int32_t>(in[kLengths])[b]} + 1;
        const std::int64_t end = std::min(Cached(in, b) + s + 1, length);
        const std::int64_t begin = g_.window > 0 ? std::max<std::int64_t>(end - g_.window, 0) : 0;
        for (std::int64_t t = 0; t < g_.present(); ++t)
          mask[t] = begin <= t && t < end ? 0 : -std::numeric_limits<float>::infinity();
      }
    }
  }

  Grouped g_;
  std::string name_;
  ScratchParts parts_;
  std::unique_ptr<Kernel> attend_;
  std::array<std::unique_ptr<Kernel>, 2> turn_;  // of queries and of keys
  Places at_;
};

Made MakeGrouped(const StepContext& ctx, Infos in, Infos out) {
  return GroupedKernel::Make(ctx, in, out);
}

constexpr Operator kOperators[] = {
    {.name = "com.microsoft.GroupQueryAttention",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferGrouped,
     .make = &FloatWidened<&MakeGrouped>,
     .types = kTypes},
};

}  // namespace

std::span<const Operator> GroupQueryOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
