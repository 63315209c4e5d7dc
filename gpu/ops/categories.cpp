// Categories of ai.onnx.ml: OneHotEncoder, ArrayFeatureExtractor, ZipMap.
#include <algorithm>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/ops/attributes.hpp"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/op_support.hpp"
#include "gpu/ops/texts.hpp"

namespace troupe::gpu {
namespace {

// --- OneHotEncoder

constexpr TypeSet kOneHotTypes =
    TypesOf({proto::INT32, proto::INT64, proto::FP32, proto::FP64, proto::BYTES});

template <class T>
absl::Status CheckApart(const StepContext& ctx, std::vector<T> categories) {
  std::ranges::sort(categories);
  const auto twice = std::ranges::adjacent_find(categories);
  if (twice == categories.end()) return absl::OkStatus();
  return ctx.Error(absl::StrCat("has the category ", *twice, " twice"));
}

std::vector<std::string> TextCategories(const StepContext& ctx) {
  std::vector<std::string> texts;
  for (const std::string* text : TextList(ctx, "cats_strings")) texts.push_back(*text);
  return texts;
}

absl::Status JudgeOneHot(const StepContext& ctx) {
  const auto numbers = IntList(ctx, "cats_int64s");
  const auto texts = TextCategories(ctx);
  if (numbers.empty() == texts.empty())
    return ctx.Error("wants its categories in exactly one of 'cats_int64s' and 'cats_strings'");
  TROUPE_RETURN_IF_ERROR(CheckApart(ctx, texts));
  return CheckApart(ctx, std::vector<std::int64_t>(numbers.begin(), numbers.end()));
}

Inferred InferOneHot(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(JudgeOneHot(ctx));
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 1, kOneHotTypes));
  const std::size_t texts = TextList(ctx, "cats_strings").size();
  if ((in[0].type == proto::BYTES) != (texts > 0))
    return ctx.Error(absl::StrCat("has categories that are ", texts > 0 ? "texts" : "numbers",
                                  " for an input of ", proto::DataType_Name(in[0].type)));
  Shape shape = in[0].shape;
  shape.push_back(static_cast<std::int64_t>(IntList(ctx, "cats_int64s").size() + texts));
  return OneValue(ctx, proto::FP32, std::move(shape));
}

// `at`: element `i` of a tensor, as a key of `places`.
template <class Key, class At>
Made MakeOneHotOf(const StepContext& ctx, std::int64_t count, absl::flat_hash_map<Key, std::int64_t> places,
                  At at) {
  const bool zeros = ctx.Int("zeros", 1) != 0;
  const std::string label = absl::StrCat(ctx.step.op(), " '", ctx.step.name(), "'");
  return MakeKernel([=, places = std::move(places)](In in, Out out, std::byte*) -> absl::Status {
    float* y = MutableData<float>(out[0]);
    const std::int64_t width = std::ssize(places);
    std::fill_n(y, count * width, 0.0F);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto found = places.find(at(in[0], i));
      if (found != places.end()) {
        y[i * width + found->second] = 1;
      } else if (!zeros) {
        return absl::InvalidArgumentError(
            absl::StrCat(label, ": the input has ", at(in[0], i), ", which is none of its categories"));
      }
    }
    return absl::OkStatus();
  });
}

Made MakeOneHotWhole(const StepContext& ctx, Infos in, Infos) {
  absl::flat_hash_map<std::int64_t, std::int64_t> places;
  for (const std::int64_t category : IntList(ctx, "cats_int64s"))
    places.emplace(category, std::ssize(places));
  return MakeOneHotOf(ctx, in[0].elements(), std::move(places),
                      [](const TensorView& x, std::int64_t i) { return Data<std::int64_t>(x)[i]; });
}

Made MakeOneHot(const StepContext& ctx, Infos in, Infos out) {
  constexpr proto::DataType kIn[] = {proto::INT64};
  constexpr proto::DataType kOut[] = {proto::FP32};
  if (in[0].type != proto::BYTES) return MakeConverted(&MakeOneHotWhole, ctx, in, out, kIn, kOut);
  absl::flat_hash_map<std::string, std::int64_t> places;
  for (std::string& category : TextCategories(ctx)) places.emplace(std::move(category), std::ssize(places));
  return MakeOneHotOf(ctx, in[0].elements(), std::move(places),
                      [](const TensorView& x, std::int64_t i) { return AbslText(TextAt(x, i)); });
}

// --- ArrayFeatureExtractor: columns by their numbers

absl::Status CheckColumns(const StepContext& ctx, std::span<const std::int64_t> columns, std::int64_t width) {
  for (std::int64_t column : columns)
    if (column < 0 || column >= width)
      return ctx.Error(absl::StrCat("asks for column ", column, " of ", width));
  return absl::OkStatus();
}

Inferred InferExtractor(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 2, 2, kAnyTypes));
  TROUPE_RETURN_IF_ERROR(CheckType(ctx, in, 1, TypesOf({proto::INT64})));
  if (in[0].shape.empty()) return ctx.Error("wants an input of rank 1 or more");
  const std::int64_t columns = in[1].elements();
  if (columns == 0) return ctx.Error("asks for no column");
  if (in[1].constant != nullptr)
    TROUPE_RETURN_IF_ERROR(
        CheckColumns(ctx, ReadInts(proto::INT64, in[1].constant, columns), in[0].shape.back()));
  Shape shape = in[0].shape;
  if (shape.size() == 1) shape.insert(shape.begin(), 1);
  shape.back() = columns;
  return OneValue(ctx, in[0].type, std::move(shape));
}

Made MakeExtractor(const StepContext& ctx, Infos in, Infos) {
  const std::int64_t width = in[0].shape.back();
  const std::int64_t rows = Product(std::span(in[0].shape).first(in[0].shape.size() - 1));
  const auto columns = static_cast<std::size_t>(in[1].elements());
  return MakeKernel([step = ctx.step, opset = ctx.opset, width, rows, columns](In in, Out out, std::byte*) {
    const std::span<const std::int64_t> wanted(Data<std::int64_t>(in[1]), columns);
    TROUPE_RETURN_IF_ERROR(CheckColumns(StepContext{step, opset}, wanted, width));
    ForElementSize(CellSize(in[0].type), [&](auto zero) {
      using T = decltype(zero);
      T* y = MutableData<T>(out[0]);
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t column : wanted) *y++ = Data<T>(in[0])[row * width + column];
      return 0;
    });
    return absl::OkStatus();
  });
}

// --- ZipMap: a map of a row becomes its values, and its keys in a second output

constexpr TypeSet kZipTypes = TypesOf({proto::FP32});

Inferred InferZipMap(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 1, kZipTypes));
  const auto keys = IntList(ctx, "classlabels_int64s");
  const auto texts = TextList(ctx, "classlabels_strings");
  const Shape& shape = in[0].shape;
  if (shape.empty() || shape.size() > 2)
    return ctx.Error(absl::StrCat("wants rows, has ", FormatShape(shape)));
  if (keys.empty() == texts.empty()) return ctx.Error("must have either whole numbers or texts as keys");
  TROUPE_RETURN_IF_ERROR(WantLength(ctx, keys.empty() ? "classlabels_strings" : "classlabels_int64s",
                                    keys.size() + texts.size(), static_cast<std::size_t>(shape.back())));
  TROUPE_ASSIGN_OR_RETURN(ValueInfo values, Value(ctx, in[0].type, shape));
  std::vector<ValueInfo> out = {std::move(values)};
  if (ctx.step.outputs_size() < 2) return out;
  TROUPE_ASSIGN_OR_RETURN(ValueInfo names, Value(ctx, texts.empty() ? proto::INT64 : proto::BYTES, shape));
  std::uint64_t longest = 0;
  for (const std::string* text : texts) longest = std::max<std::uint64_t>(longest, text->size());
  if (!texts.empty()) MakesTexts(names, BoundOf(names.elements(), longest));
  out.push_back(std::move(names));
  return out;
}

// The keys of every row.
Made MakeKeys(std::vector<std::string> texts, std::int64_t rows, Bytes room) {
  return MakeKernel([texts = std::move(texts), rows, room](In in, Out out, std::byte*) -> absl::Status {
    CopyBytes(out[0].data, in[0].data, BytesOf(in[0]));
    TextWriter writer(out[1], room);
    for (std::int64_t row = 0; row < rows; ++row)
      for (const std::string& text : texts) TROUPE_RETURN_IF_ERROR(writer.Add(text));
    return absl::OkStatus();
  });
}

Made MakeZipMap(const StepContext& ctx, Infos in, Infos out) {
  const auto keys = IntList(ctx, "classlabels_int64s");
  if (out.size() == 2 && out[1].type == proto::BYTES) {
    std::vector<std::string> texts;
    for (const std::string* text : TextList(ctx, "classlabels_strings")) texts.push_back(*text);
    const std::int64_t rows = in[0].elements() / std::ssize(texts);
    return MakeKeys(std::move(texts), rows, RoomForTexts(out[1]));
  }
  return MakeKernel(
      [keys = Shape(keys.begin(), keys.end()), count = in[0].elements()](In in, Out out, std::byte*) {
        CopyBytes(out[0].data, in[0].data, BytesOf(in[0]));
        if (out.size() < 2) return absl::OkStatus();
        auto* names = MutableData<std::int64_t>(out[1]);
        const auto width = static_cast<std::int64_t>(keys.size());
        for (std::int64_t i = 0; i < count; i += width) std::ranges::copy(keys, names + i);
        return absl::OkStatus();
      });
}

constexpr Operator kOperators[] = {
    {.name = "ai.onnx.ml.OneHotEncoder",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferOneHot,
     .make = &MakeOneHot,
     .types = kOneHotTypes,
     .judge = &JudgeOneHot},
    {.name = "ai.onnx.ml.ArrayFeatureExtractor",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferExtractor,
     .make = &MakeExtractor,
     .types = kAnyTypes},
    {.name = "ai.onnx.ml.ZipMap",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferZipMap,
     .make = &MakeZipMap,
     .types = kZipTypes},
};

}  // namespace

std::span<const Operator> CategoryOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
