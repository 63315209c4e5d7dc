// Labels and categories of ai.onnx.ml as numbers: LabelEncoder, OneHotEncoder, ArrayFeatureExtractor, ZipMap.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "gpu/ops/attributes.hpp"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/op_support.hpp"

namespace troupe::gpu {
namespace {

absl::Status RefuseTexts(const StepContext& ctx, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (!TextList(ctx, name).empty())
      return ctx.Error(
          absl::StrCat("has texts in attribute '", name,
                       "', and strings are not computed here: map them to whole numbers before the "
                       "model, and export it with these"));
  return absl::OkStatus();
}

// --- LabelEncoder

constexpr TypeSet kLabelTypes = TypesOf({proto::INT64, proto::FP32, proto::FP64, proto::INT16});

// Keys or values, of whichever attribute has them.
struct Labels {
  proto::DataType type = proto::DATA_TYPE_UNSPECIFIED;
  std::vector<double> floats;       // FP32, FP64
  std::vector<std::int64_t> whole;  // INT16, INT64
  [[nodiscard]] std::size_t size() const { return floats.size() + whole.size(); }
};

// The elements of a tensor attribute of whole numbers, exactly.
std::vector<std::int64_t> WholeElements(const proto::Attribute::Literal& tensor, std::int64_t count) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(count));
  if (count > 0)
    ConvertElements(tensor.spec().type(), reinterpret_cast<const std::byte*>(tensor.data().data()),
                    proto::INT64, reinterpret_cast<std::byte*>(values.data()), count);
  return values;
}

absl::StatusOr<Labels> LabelsOf(const StepContext& ctx, const std::string& kind) {
  Labels labels;
  const std::string tensor = absl::StrCat(kind, "_tensor");
  const auto whole = IntList(ctx, absl::StrCat(kind, "_int64s"));
  const auto floats = FloatList(ctx, absl::StrCat(kind, "_floats"));
  if (ctx.Find(tensor) != nullptr) {
    TROUPE_ASSIGN_OR_RETURN(labels.floats, TensorList(ctx, tensor));
    labels.type = TensorTypeOf(ctx, tensor);
    if (labels.type == proto::INT64 || labels.type == proto::INT16) {
      labels.whole =
          WholeElements(ctx.Find(tensor)->tensor(), static_cast<std::int64_t>(labels.floats.size()));
      labels.floats.clear();
    }
  } else if (!whole.empty()) {
    labels.type = proto::INT64;
    labels.whole.assign(whole.begin(), whole.end());
  } else {
    labels.type = proto::FP32;
    labels.floats.assign(floats.begin(), floats.end());
  }
  if (!Has(kLabelTypes, labels.type) || labels.size() == 0)
    return ctx.Error(absl::StrCat("has no ", kind,
                                  " of a type that is computed here, which are INT64, FP32, "
                                  "FP64 and INT16"));
  const int given =
      (ctx.Find(tensor) != nullptr ? 1 : 0) + (whole.empty() ? 0 : 1) + (floats.empty() ? 0 : 1);
  if (given > 1) return ctx.Error(absl::StrCat("has ", kind, " in ", given, " attributes, one is wanted"));
  return labels;
}

// What stands for a key that is not there, as an element of the values' type.
absl::StatusOr<Labels> DefaultOf(const StepContext& ctx, proto::DataType type) {
  Labels value;
  value.type = type;
  TROUPE_ASSIGN_OR_RETURN(const std::vector<double> tensor, TensorList(ctx, "default_tensor"));
  if (!tensor.empty()) {
    if (TensorTypeOf(ctx, "default_tensor") != type || tensor.size() != 1)
      return ctx.Error("attribute 'default_tensor' must be one element of the values' type");
    value.floats = tensor;
    value.whole = WholeElements(ctx.Find("default_tensor")->tensor(), 1);
    return value;
  }
  value.floats = {ctx.Float("default_float", -0.0F)};
  value.whole = {ctx.Int("default_int64", -1)};
  return value;
}

void Append(proto::DataType type, double real, std::int64_t whole, std::vector<std::byte>& to) {
  const std::size_t size = ElementSize(type);
  const std::size_t at = to.size();
  to.resize(at + size);
  const auto narrow = static_cast<float>(real);
  const void* from = &whole;  // little-endian: the first bytes are the small number
  if (type == proto::FP32) from = &narrow;
  if (type == proto::FP64) from = &real;
  std::memcpy(to.data() + at, from, size);
}

// One sorted list of keys, and the values' elements in the same order with the default behind the last.
template <class Key>
struct LabelMap {
  std::vector<Key> keys;
  std::vector<std::byte> values;
  std::size_t nan = 0;  // the place of the value of NaN

  [[nodiscard]] std::size_t Find(Key key) const {
    if (key != key) return nan;
    const auto at = std::ranges::lower_bound(keys, key);
    return at == keys.end() || *at != key ? keys.size() : static_cast<std::size_t>(at - keys.begin());
  }
};

template <class Key>
LabelMap<Key> MapOf(const std::vector<Key>& keys, const Labels& values, const Labels& otherwise) {
  std::vector<std::pair<Key, std::size_t>> order;
  for (std::size_t i = 0; i < keys.size(); ++i)
    if (keys[i] == keys[i]) order.emplace_back(keys[i], i);
  std::ranges::sort(order);
  LabelMap<Key> map;
  const auto append = [&](const Labels& from, std::size_t i) {
    Append(values.type, i < from.floats.size() ? from.floats[i] : 0,
           i < from.whole.size() ? from.whole[i] : 0, map.values);
  };
  for (const auto& [key, i] : order) {
    if (!map.keys.empty() && map.keys.back() == key) continue;  // the first of equal keys counts
    map.keys.push_back(key);
    append(values, i);
  }
  append(otherwise, 0);
  map.nan = map.keys.size();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] == keys[i]) continue;
    map.nan = map.keys.size() + 1;
    append(values, i);
    break;
  }
  return map;
}

struct EncoderLists {
  Labels keys;
  Labels values;
  Labels otherwise;
};

absl::StatusOr<EncoderLists> ReadEncoder(const StepContext& ctx) {
  TROUPE_RETURN_IF_ERROR(RefuseTexts(ctx, {"classes_strings", "keys_strings", "values_strings"}));
  EncoderLists lists;
  TROUPE_ASSIGN_OR_RETURN(lists.keys, LabelsOf(ctx, "keys"));
  TROUPE_ASSIGN_OR_RETURN(lists.values, LabelsOf(ctx, "values"));
  TROUPE_ASSIGN_OR_RETURN(lists.otherwise, DefaultOf(ctx, lists.values.type));
  if (lists.keys.size() != lists.values.size())
    return ctx.Error(absl::StrCat("has ", lists.keys.size(), " keys and ", lists.values.size(), " values"));
  return lists;
}

absl::Status JudgeEncoder(const StepContext& ctx) {
  return ReadEncoder(ctx).status();
}

Inferred InferEncoder(const StepContext& ctx, Infos in) {
  TROUPE_ASSIGN_OR_RETURN(const EncoderLists lists, ReadEncoder(ctx));
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 1, kLabelTypes));
  if (in[0].type != lists.keys.type)
    return ctx.Error(absl::StrCat("has keys of type ", proto::DataType_Name(lists.keys.type),
                                  " for an input of ", proto::DataType_Name(in[0].type)));
  return OneValue(ctx, lists.values.type, in[0].shape);
}

template <class Key>
Made MakeEncoderOf(LabelMap<Key> map, std::size_t size, std::int64_t count) {
  return MakeKernel([map = std::move(map), size, count](In in, Out out, std::byte*) {
    const auto find = [&](const auto* x) {
      for (std::int64_t i = 0; i < count; ++i)
        std::memcpy(out[0].data + static_cast<std::size_t>(i) * size,
                    map.values.data() + map.Find(static_cast<Key>(x[i])) * size, size);
    };
    if (in[0].type == proto::INT64) find(Data<std::int64_t>(in[0]));
    if (in[0].type == proto::INT16) find(Data<std::int16_t>(in[0]));
    if (in[0].type == proto::FP32) find(Data<float>(in[0]));
    if (in[0].type == proto::FP64) find(Data<double>(in[0]));
    return absl::OkStatus();
  });
}

Made MakeEncoder(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(const EncoderLists lists, ReadEncoder(ctx));
  const std::size_t size = ElementSize(lists.values.type);
  if (lists.keys.whole.empty())
    return MakeEncoderOf(MapOf(lists.keys.floats, lists.values, lists.otherwise), size, in[0].elements());
  return MakeEncoderOf(MapOf(lists.keys.whole, lists.values, lists.otherwise), size, in[0].elements());
}

// --- OneHotEncoder

constexpr TypeSet kOneHotTypes = TypesOf({proto::INT32, proto::INT64, proto::FP32, proto::FP64});

absl::Status JudgeOneHot(const StepContext& ctx) {
  TROUPE_RETURN_IF_ERROR(RefuseTexts(ctx, {"cats_strings"}));
  const auto categories = IntList(ctx, "cats_int64s");
  if (categories.empty()) return ctx.Error("has no categories: attribute 'cats_int64s' is empty or absent");
  std::vector<std::int64_t> sorted(categories.begin(), categories.end());
  std::ranges::sort(sorted);
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end())
    return ctx.Error(absl::StrCat("has the category ", *twice, " twice"));
  return absl::OkStatus();
}

Inferred InferOneHot(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(JudgeOneHot(ctx));
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 1, kOneHotTypes));
  Shape shape = in[0].shape;
  shape.push_back(static_cast<std::int64_t>(IntList(ctx, "cats_int64s").size()));
  return OneValue(ctx, proto::FP32, std::move(shape));
}

Made MakeOneHotWhole(const StepContext& ctx, Infos in, Infos) {
  const auto categories = IntList(ctx, "cats_int64s");
  std::vector<std::pair<std::int64_t, std::int64_t>> places;
  for (std::size_t i = 0; i < categories.size(); ++i)
    places.emplace_back(categories[i], static_cast<std::int64_t>(i));
  std::ranges::sort(places);
  const bool zeros = ctx.Int("zeros", 1) != 0;
  const std::string label = absl::StrCat(ctx.step.op(), " '", ctx.step.name(), "'");
  return MakeKernel(
      [=, places = std::move(places), count = in[0].elements()](In in, Out out, std::byte*) -> absl::Status {
        using Place = std::pair<std::int64_t, std::int64_t>;
        const auto* x = Data<std::int64_t>(in[0]);
        float* y = MutableData<float>(out[0]);
        const auto width = static_cast<std::int64_t>(places.size());
        std::fill_n(y, count * width, 0.0F);
        for (std::int64_t i = 0; i < count; ++i) {
          const auto at = std::ranges::lower_bound(places, x[i], {}, &Place::first);
          if (at != places.end() && at->first == x[i]) {
            y[i * width + at->second] = 1;
          } else if (!zeros) {
            return absl::InvalidArgumentError(
                absl::StrCat(label, ": the input has ", x[i], ", which is none of its categories"));
          }
        }
        return absl::OkStatus();
      });
}

Made MakeOneHot(const StepContext& ctx, Infos in, Infos out) {
  constexpr proto::DataType kIn[] = {proto::INT64};
  constexpr proto::DataType kOut[] = {proto::FP32};
  return MakeConverted(&MakeOneHotWhole, ctx, in, out, kIn, kOut);
}

// --- ArrayFeatureExtractor: columns by their numbers

absl::Status CheckColumns(const StepContext& ctx, std::span<const std::int64_t> columns, std::int64_t width) {
  for (std::int64_t column : columns)
    if (column < 0 || column >= width)
      return ctx.Error(absl::StrCat("asks for column ", column, " of ", width));
  return absl::OkStatus();
}

Inferred InferExtractor(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 2, 2, kFixedTypes));
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
    ForElementSize(ElementSize(in[0].type), [&](auto zero) {
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
  if (keys.empty() || ctx.step.outputs_size() < 2) return out;
  TROUPE_ASSIGN_OR_RETURN(ValueInfo names, Value(ctx, proto::INT64, shape));
  out.push_back(std::move(names));
  return out;
}

Made MakeZipMap(const StepContext& ctx, Infos in, Infos) {
  const auto keys = IntList(ctx, "classlabels_int64s");
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
    {.name = "ai.onnx.ml.LabelEncoder",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferEncoder,
     .make = &MakeEncoder,
     .types = kLabelTypes,
     .judge = &JudgeEncoder},
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
     .types = kFixedTypes},
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
