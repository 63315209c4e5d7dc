// LabelEncoder and CategoryMapper of ai.onnx.ml: each key of a list becomes the value beside it, in all types and both
// directions.
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/ops/attributes.hpp"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/texts.hpp"

namespace troupe::gpu {
namespace {

constexpr TypeSet kLabelTypes = TypesOf({proto::INT64, proto::FP32, proto::FP64, proto::INT16, proto::BYTES});

// Keys or values, of whichever attribute has them.
struct Labels {
  proto::DataType type = proto::DATA_TYPE_UNSPECIFIED;
  std::vector<double> floats;       // FP32, FP64
  std::vector<std::int64_t> whole;  // INT16, INT64
  std::vector<std::string> texts;   // BYTES
  [[nodiscard]] std::size_t size() const { return floats.size() + whole.size() + texts.size(); }
};

std::vector<std::string> Copied(std::span<const std::string* const> texts) {
  std::vector<std::string> copy;
  for (const std::string* text : texts) copy.push_back(*text);
  return copy;
}

// The elements of a tensor attribute of whole numbers, exactly.
std::vector<std::int64_t> WholeElements(const proto::Attribute::Literal& tensor, std::int64_t count) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(count));
  if (count > 0)
    ConvertElements(tensor.spec().type(), reinterpret_cast<const std::byte*>(tensor.data().data()),
                    proto::INT64, reinterpret_cast<std::byte*>(values.data()), count);
  return values;
}

absl::StatusOr<std::vector<std::string>> TextElements(const StepContext& ctx, const std::string& name) {
  const proto::Attribute::Literal& tensor = ctx.Find(name)->tensor();
  const Shape shape(tensor.spec().shape().begin(), tensor.spec().shape().end());
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t count, CountElements(shape));
  // Each text has a length: a larger count is a lie.
  if (static_cast<std::uint64_t>(count) > tensor.data().size() / kTextLength)
    return ctx.Error(absl::StrCat("attribute '", name, "' has ", tensor.data().size(), " bytes, too few for ",
                                  count, " texts"));
  std::vector<Text> cells(static_cast<std::size_t>(count));
  if (const absl::Status status = PointAtTexts(std::as_bytes(std::span(tensor.data())), count, cells.data());
      !status.ok())
    return ctx.Error(absl::StrCat("attribute '", name, "': ", status.message()));
  std::vector<std::string> texts;
  for (const Text cell : cells) texts.emplace_back(ReadText(cell));
  return texts;
}

absl::StatusOr<Labels> TensorLabels(const StepContext& ctx, const std::string& name) {
  Labels labels;
  labels.type = TensorTypeOf(ctx, name);
  if (labels.type == proto::BYTES) {
    TROUPE_ASSIGN_OR_RETURN(labels.texts, TextElements(ctx, name));
    return labels;
  }
  TROUPE_ASSIGN_OR_RETURN(labels.floats, TensorList(ctx, name));
  if (labels.type == proto::INT64 || labels.type == proto::INT16) {
    labels.whole = WholeElements(ctx.Find(name)->tensor(), std::ssize(labels.floats));
    labels.floats.clear();
  }
  return labels;
}

absl::StatusOr<Labels> LabelsOf(const StepContext& ctx, const std::string& kind) {
  Labels labels;
  const std::string tensor = absl::StrCat(kind, "_tensor");
  const auto whole = IntList(ctx, absl::StrCat(kind, "_int64s"));
  const auto floats = FloatList(ctx, absl::StrCat(kind, "_floats"));
  const auto texts = TextList(ctx, absl::StrCat(kind, "_strings"));
  const bool in_tensor = ctx.Find(tensor) != nullptr;
  const int given =
      (in_tensor ? 1 : 0) + (whole.empty() ? 0 : 1) + (floats.empty() ? 0 : 1) + (texts.empty() ? 0 : 1);
  if (given > 1) return ctx.Error(absl::StrCat("has ", kind, " in ", given, " attributes, one is wanted"));
  if (in_tensor) {
    TROUPE_ASSIGN_OR_RETURN(labels, TensorLabels(ctx, tensor));
  } else if (!whole.empty()) {
    labels.type = proto::INT64;
    labels.whole.assign(whole.begin(), whole.end());
  } else if (!texts.empty()) {
    labels.type = proto::BYTES;
    labels.texts = Copied(texts);
  } else {
    labels.type = proto::FP32;
    labels.floats.assign(floats.begin(), floats.end());
  }
  if (!Has(kLabelTypes, labels.type) || labels.size() == 0)
    return ctx.Error(absl::StrCat("has no ", kind,
                                  " of a type that is computed here, which are INT64, FP32, "
                                  "FP64, INT16 and texts"));
  return labels;
}

// What stands for a key that is not there, as an element of the values' type.
absl::StatusOr<Labels> DefaultOf(const StepContext& ctx, proto::DataType type) {
  Labels value;
  value.type = type;
  if (ctx.Find("default_tensor") != nullptr) {
    TROUPE_ASSIGN_OR_RETURN(value, TensorLabels(ctx, "default_tensor"));
    if (value.type == type && value.size() == 1) return value;
    return ctx.Error("attribute 'default_tensor' must be one element of the values' type");
  }
  value.floats = {ctx.Float("default_float", -0.0F)};
  value.whole = {ctx.Int("default_int64", -1)};
  value.texts = {ctx.Text("default_string", "_Unused")};
  return value;
}

struct EncoderLists {
  Labels keys;
  Labels values;
  Labels otherwise;
};

bool IsMapper(const StepContext& ctx) {
  return ctx.step.op() == "ai.onnx.ml.CategoryMapper";
}

// The two lists of a CategoryMapper, or those of version 1 of LabelEncoder, where a text stands beside its place. The
// input's type says which of them has the keys.
absl::StatusOr<EncoderLists> ReadBothWays(const StepContext& ctx, proto::DataType in) {
  Labels texts;
  texts.type = proto::BYTES;
  texts.texts = Copied(TextList(ctx, IsMapper(ctx) ? "cats_strings" : "classes_strings"));
  Labels numbers;
  numbers.type = proto::INT64;
  const auto given = IntList(ctx, "cats_int64s");
  numbers.whole.assign(given.begin(), given.end());
  for (std::size_t i = 0; !IsMapper(ctx) && i < texts.texts.size(); ++i)
    numbers.whole.push_back(static_cast<std::int64_t>(i));
  if (texts.texts.empty()) return ctx.Error("has no texts: attribute 'cats_strings' is empty or absent");
  EncoderLists lists;
  const bool from_text = in == proto::BYTES;
  lists.keys = from_text ? texts : numbers;
  lists.values = from_text ? std::move(numbers) : std::move(texts);
  return lists;
}

// `in`: the input's type; unspecified where it is not known yet.
absl::StatusOr<EncoderLists> ReadEncoder(const StepContext& ctx, proto::DataType in) {
  EncoderLists lists;
  if (IsMapper(ctx) || !TextList(ctx, "classes_strings").empty()) {
    TROUPE_ASSIGN_OR_RETURN(lists, ReadBothWays(ctx, in));
  } else {
    TROUPE_ASSIGN_OR_RETURN(lists.keys, LabelsOf(ctx, "keys"));
    TROUPE_ASSIGN_OR_RETURN(lists.values, LabelsOf(ctx, "values"));
  }
  TROUPE_ASSIGN_OR_RETURN(lists.otherwise, DefaultOf(ctx, lists.values.type));
  if (lists.keys.size() != lists.values.size())
    return ctx.Error(absl::StrCat("has ", lists.keys.size(), " keys and ", lists.values.size(), " values"));
  return lists;
}

absl::Status JudgeEncoder(const StepContext& ctx) {
  return ReadEncoder(ctx, proto::DATA_TYPE_UNSPECIFIED).status();
}

Inferred InferEncoder(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 1, kLabelTypes));
  TROUPE_ASSIGN_OR_RETURN(const EncoderLists lists, ReadEncoder(ctx, in[0].type));
  if (in[0].type != lists.keys.type)
    return ctx.Error(absl::StrCat("has keys of type ", proto::DataType_Name(lists.keys.type),
                                  " for an input of ", proto::DataType_Name(in[0].type)));
  TROUPE_ASSIGN_OR_RETURN(std::vector<ValueInfo> out, OneValue(ctx, lists.values.type, in[0].shape));
  if (lists.values.type != proto::BYTES) return out;
  std::uint64_t longest = lists.otherwise.texts[0].size();
  for (const std::string& text : lists.values.texts) longest = std::max<std::uint64_t>(longest, text.size());
  MakesTexts(out[0], BoundOf(in[0].elements(), longest));
  return out;
}

// Where the value of a key is: the default stands behind the last of `count` values.
template <class Key>
class Places {
 public:
  Places(const std::vector<Key>& keys) : otherwise_(keys.size()), nan_(keys.size()) {
    for (std::size_t i = keys.size(); i-- > 0;) {  // the first of equal keys counts
      if (keys[i] == keys[i])
        places_[keys[i]] = i;
      else
        nan_ = i;
    }
  }
  template <class Wanted>
  [[nodiscard]] std::size_t Find(const Wanted& key) const {
    if (key != key) return nan_;
    const auto found = places_.find(key);
    return found == places_.end() ? otherwise_ : found->second;
  }

 private:
  absl::flat_hash_map<Key, std::size_t> places_;
  std::size_t otherwise_;
  std::size_t nan_;  // the place of the value of NaN
};

// Calls `use` with the place of each element's value.
template <class T, class Key, class Use>
absl::Status FindEach(const Places<Key>& places, const TensorView& in, Use use) {
  const std::int64_t count = Elements(in);
  for (std::int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_same_v<T, Text>) {
      TROUPE_RETURN_IF_ERROR(use(i, places.Find(AbslText(TextAt(in, i)))));
    } else {
      TROUPE_RETURN_IF_ERROR(use(i, places.Find(static_cast<Key>(Data<T>(in)[i]))));
    }
  }
  return absl::OkStatus();
}

std::vector<std::byte> PackedNumbers(const Labels& values, const Labels& otherwise) {
  const std::size_t size = CellSize(values.type);
  std::vector<std::byte> packed((values.size() + 1) * size);
  for (std::size_t i = 0; i <= values.size(); ++i) {
    const bool is_default = i == values.size();
    const Labels& from = is_default ? otherwise : values;
    const std::size_t at = is_default ? 0 : i;
    const bool real = values.type == proto::FP32 || values.type == proto::FP64;
    const double number = real ? from.floats[at] : 0;
    const std::int64_t whole = real ? 0 : from.whole[at];
    ConvertElements(
        real ? proto::FP64 : proto::INT64,
        real ? reinterpret_cast<const std::byte*>(&number) : reinterpret_cast<const std::byte*>(&whole),
        values.type, packed.data() + i * size, 1);
  }
  return packed;
}

template <class T, class Key>
Made MakeEncoderOf(const std::vector<Key>& keys, EncoderLists lists, const ValueInfo& out) {
  Places<Key> places(keys);
  if (lists.values.type == proto::BYTES) {
    std::vector<std::string> texts = std::move(lists.values.texts);
    texts.push_back(std::move(lists.otherwise.texts[0]));
    return MakeKernel([places = std::move(places), texts = std::move(texts), room = RoomForTexts(out)](
                          In in, Out out, std::byte*) {
      TextWriter writer(out[0], room);
      return FindEach<T>(places, in[0],
                         [&](std::int64_t, std::size_t place) { return writer.Add(texts[place]); });
    });
  }
  return MakeKernel([places = std::move(places), packed = PackedNumbers(lists.values, lists.otherwise),
                     size = CellSize(out.type)](In in, Out out, std::byte*) {
    return FindEach<T>(places, in[0], [&](std::int64_t i, std::size_t place) {
      std::memcpy(out[0].data + static_cast<std::size_t>(i) * size, packed.data() + place * size, size);
      return absl::OkStatus();
    });
  });
}

Made MakeEncoder(const StepContext& ctx, Infos in, Infos out) {
  TROUPE_ASSIGN_OR_RETURN(EncoderLists lists, ReadEncoder(ctx, in[0].type));
  const Labels keys = std::move(lists.keys);
  switch (in[0].type) {
    case proto::INT64:
      return MakeEncoderOf<std::int64_t>(keys.whole, std::move(lists), out[0]);
    case proto::INT16:
      return MakeEncoderOf<std::int16_t>(keys.whole, std::move(lists), out[0]);
    case proto::FP32:
      return MakeEncoderOf<float>(keys.floats, std::move(lists), out[0]);
    case proto::FP64:
      return MakeEncoderOf<double>(keys.floats, std::move(lists), out[0]);
    default:
      return MakeEncoderOf<Text>(keys.texts, std::move(lists), out[0]);
  }
}

constexpr Operator kOperators[] = {
    {.name = "ai.onnx.ml.LabelEncoder",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferEncoder,
     .make = &MakeEncoder,
     .types = kLabelTypes,
     .judge = &JudgeEncoder},
    {.name = "ai.onnx.ml.CategoryMapper",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferEncoder,
     .make = &MakeEncoder,
     .types = TypesOf({proto::INT64, proto::BYTES}),
     .judge = &JudgeEncoder},
};

}  // namespace

std::span<const Operator> LabelOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
