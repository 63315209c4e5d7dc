// Operators of texts alone: StringNormalizer, StringConcat, StringSplit.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.hpp"
#include "gpu/ops/attributes.hpp"
#include "gpu/ops/binary_rows.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/text_case.hpp"
#include "gpu/ops/texts.hpp"

namespace troupe::gpu {
namespace {

// --- StringNormalizer: stop words go, and the case of the others changes

struct Normalizer {
  CaseChange change = CaseChange::kNone;   // of what is kept
  CaseChange compare = CaseChange::kNone;  // of what is compared with the stop words
  absl::flat_hash_set<std::string> stop;
};

absl::StatusOr<CaseChange> CaseChangeOf(const StepContext& ctx) {
  const std::string name = ctx.Text("case_change_action", "NONE");
  if (name == "NONE") return CaseChange::kNone;
  if (name == "LOWER") return CaseChange::kLower;
  if (name == "UPPER") return CaseChange::kUpper;
  return ctx.Error(absl::StrCat("has the case_change_action '", name, "', expected LOWER, UPPER or NONE"));
}

// Languages with rules of their own for single letters (Turkish) are not here.
absl::Status CheckLocale(const StepContext& ctx) {
  const std::string locale = ctx.Text("locale", "en_US");
  for (const char* known : {"en", "C", "POSIX"})
    if (locale == known || absl::StartsWith(locale, absl::StrCat(known, "_")) ||
        absl::StartsWith(locale, absl::StrCat(known, "-")) ||
        absl::StartsWith(locale, absl::StrCat(known, ".")))
      return absl::OkStatus();
  if (locale.empty()) return absl::OkStatus();
  return ctx.Error(absl::StrCat("has the locale '", locale, "', supported are en_US and C"));
}

absl::StatusOr<Normalizer> ReadNormalizer(const StepContext& ctx) {
  TROUPE_RETURN_IF_ERROR(CheckLocale(ctx));
  Normalizer normalizer;
  TROUPE_ASSIGN_OR_RETURN(normalizer.change, CaseChangeOf(ctx));
  if (ctx.Int("is_case_sensitive", 0) == 0) normalizer.compare = CaseChange::kLower;
  std::string word;
  for (const std::string* stop : TextList(ctx, "stopwords")) {
    ChangeCase(normalizer.compare, *stop, word);
    normalizer.stop.insert(word);
  }
  return normalizer;
}

Inferred InferNormalizer(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 1, kTextType));
  TROUPE_RETURN_IF_ERROR(ReadNormalizer(ctx).status());
  Shape shape = in[0].shape;
  if (shape.empty() || shape.size() > 2 || (shape.size() == 2 && shape[0] != 1))
    return ctx.Error(absl::StrCat("wants texts of shape [C] or [1,C], has ", FormatShape(shape)));
  shape.back() = std::max<std::int64_t>(shape.back(), 1);  // where all go, one empty text is left
  const std::uint64_t growth = ctx.Text("case_change_action", "NONE") == "NONE" ? 1 : kMostCaseGrowth;
  TROUPE_ASSIGN_OR_RETURN(std::vector<ValueInfo> out, OneValue(ctx, proto::BYTES, shape, true));
  MakesTexts(out[0],
             {in[0].texts.longest * growth, std::min(in[0].texts.total * growth, kMaxTextBytes.count())});
  return out;
}

Made MakeNormalizer(const StepContext& ctx, Infos, Infos out) {
  TROUPE_ASSIGN_OR_RETURN(Normalizer normalizer, ReadNormalizer(ctx));
  return MakeKernel([normalizer = std::move(normalizer), room = RoomForTexts(out[0]),
                     places = out[0].elements()](In in, Out out, std::byte*) -> absl::Status {
    out[0].shape.back() = places;
    TextWriter writer(out[0], room);
    const std::int64_t count = Elements(in[0]);
    std::int64_t kept = 0;
    std::string text;
    for (std::int64_t i = 0; i < count; ++i) {
      ChangeCase(normalizer.compare, TextAt(in[0], i), text);
      if (normalizer.stop.contains(text)) continue;
      ChangeCase(normalizer.change, TextAt(in[0], i), text);
      TROUPE_RETURN_IF_ERROR(writer.Add(text));
      ++kept;
    }
    if (kept == 0) TROUPE_RETURN_IF_ERROR(writer.Add(""));
    out[0].shape.back() = std::max<std::int64_t>(kept, 1);
    return absl::OkStatus();
  });
}

// --- StringConcat

Inferred InferConcatenation(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 2, 2, kTextType));
  TROUPE_RETURN_IF_ERROR(CheckType(ctx, in, 1, kTextType));
  TROUPE_ASSIGN_OR_RETURN(Shape shape, BroadcastAll(ctx, in));
  TROUPE_ASSIGN_OR_RETURN(std::vector<ValueInfo> out, OneValue(ctx, proto::BYTES, std::move(shape)));
  std::uint64_t total = 0;
  for (const ValueInfo& info : in)
    total +=
        info.shape == out[0].shape ? info.texts.total : BoundOf(out[0].elements(), info.texts.longest).total;
  MakesTexts(out[0], {in[0].texts.longest + in[1].texts.longest, std::min(total, kMaxTextBytes.count())});
  return out;
}

Made MakeConcatenation(const StepContext&, Infos in, Infos out) {
  // Where each element's two texts are, as a row of pointers to elements would be.
  BroadcastLoop first(std::array{in[0].shape}, std::array{sizeof(Text)}, out[0].shape, sizeof(Text));
  BroadcastLoop second(std::array{in[1].shape}, std::array{sizeof(Text)}, out[0].shape, sizeof(Text));
  const auto count = static_cast<std::size_t>(out[0].elements());
  const Bytes one(count * sizeof(Text));
  return MakeKernel(
      [first, second, count, room = RoomForTexts(out[0])](In in, Out out,
                                                          std::byte* scratch) -> absl::Status {
        const RowFunction copy = [](const Row& row) {
          for (std::int64_t i = 0; i < row.n; ++i)
            reinterpret_cast<Text*>(row.out)[i] = reinterpret_cast<const Text*>(row.in[0])[i * row.step[0]];
        };
        auto* const left = reinterpret_cast<Text*>(scratch);
        Text* const right = left + count;
        first.Run(copy, std::array<const std::byte*, 1>{in[0].data}, reinterpret_cast<std::byte*>(left),
                  nullptr);
        second.Run(copy, std::array<const std::byte*, 1>{in[1].data}, reinterpret_cast<std::byte*>(right),
                   nullptr);
        TextWriter writer(out[0], room);
        for (std::size_t i = 0; i < count; ++i)
          TROUPE_RETURN_IF_ERROR(
              writer.Add(absl::StrCat(AbslText(ReadText(left[i])), AbslText(ReadText(right[i])))));
        return absl::OkStatus();
      },
      one + one);
}

// --- StringSplit

// Room for so many parts in all is more than a plan should have.
constexpr std::int64_t kMostParts = std::int64_t{1} << 22;

std::string_view Stripped(absl::string_view text) {
  return {text.data(), text.size()};
}

struct Splitter {
  std::string delimiter;  // empty: blanks, as many as stand together
  std::int64_t most = 0;  // parts of one text

  [[nodiscard]] std::vector<std::string_view> Split(std::string_view text) const {
    std::vector<std::string_view> parts;
    if (delimiter.empty()) text = Stripped(absl::StripAsciiWhitespace(AbslText(text)));
    while (!text.empty() && static_cast<std::int64_t>(parts.size()) + 1 < most) {
      const std::size_t end =
          delimiter.empty()
              ? static_cast<std::size_t>(std::ranges::find_if(text, absl::ascii_isspace) - text.begin())
              : std::min(text.find(delimiter), text.size());
      parts.push_back(text.substr(0, end));
      if (end == text.size()) return parts;
      text.remove_prefix(end + delimiter.size());
      if (delimiter.empty()) text = Stripped(absl::StripLeadingAsciiWhitespace(AbslText(text)));
      if (text.empty() && !delimiter.empty()) parts.push_back(text);
    }
    if (!text.empty()) parts.push_back(text);
    return parts;
  }
};

Splitter SplitterOf(const StepContext& ctx, const ValueInfo& in) {
  Splitter splitter;
  splitter.delimiter = ctx.Text("delimiter", "");
  const std::uint64_t least = splitter.delimiter.empty() ? 1 : splitter.delimiter.size();
  splitter.most = static_cast<std::int64_t>(in.texts.longest / least) + 1;
  if (ctx.Find("maxsplit") != nullptr)
    splitter.most = std::min(splitter.most, std::max<std::int64_t>(ctx.Int("maxsplit", 0), 0) + 1);
  return splitter;
}

Inferred InferSplitter(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 1, kTextType));
  const std::int64_t most = SplitterOf(ctx, in[0]).most;
  if (in[0].elements() > kMostParts / most)
    return ctx.Error(absl::StrCat("may make ", most, " parts of each of ", in[0].elements(),
                                  " texts, more than ", kMostParts,
                                  " in all; set maxsplit, or send fewer or shorter texts"));
  Shape shape = in[0].shape;
  shape.push_back(most);
  TROUPE_ASSIGN_OR_RETURN(std::vector<ValueInfo> out, OneValue(ctx, proto::BYTES, std::move(shape), true));
  MakesTexts(out[0], in[0].texts);
  TROUPE_ASSIGN_OR_RETURN(ValueInfo counts, Value(ctx, proto::INT64, in[0].shape));
  out.push_back(std::move(counts));
  return out;
}

Made MakeSplitter(const StepContext& ctx, Infos in, Infos out) {
  return MakeKernel([splitter = SplitterOf(ctx, in[0]), room = RoomForTexts(out[0])](
                        In in, Out out, std::byte*) -> absl::Status {
    const std::int64_t count = Elements(in[0]);
    std::vector<std::vector<std::string_view>> all;
    std::size_t most = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      all.push_back(splitter.Split(TextAt(in[0], i)));
      most = std::max(most, all.back().size());
      if (out.size() > 1 && out[1].data != nullptr)
        MutableData<std::int64_t>(out[1])[i] = static_cast<std::int64_t>(all.back().size());
    }
    out[0].shape.back() = static_cast<std::int64_t>(most);
    TextWriter writer(out[0], room);
    for (const auto& parts : all)
      for (std::size_t part = 0; part < most; ++part)
        TROUPE_RETURN_IF_ERROR(writer.Add(part < parts.size() ? parts[part] : std::string_view()));
    return absl::OkStatus();
  });
}

constexpr Operator kOperators[] = {
    {.name = "StringNormalizer",
     .min_opset = 10,
     .max_opset = kNewestOpset,
     .infer = &InferNormalizer,
     .make = &MakeNormalizer,
     .types = kTextType,
     .sizes_output = true},
    {.name = "StringConcat",
     .min_opset = 20,
     .max_opset = kNewestOpset,
     .infer = &InferConcatenation,
     .make = &MakeConcatenation,
     .types = kTextType},
    {.name = "StringSplit",
     .min_opset = 20,
     .max_opset = kNewestOpset,
     .infer = &InferSplitter,
     .make = &MakeSplitter,
     .types = kTextType,
     .sizes_output = true},
};

}  // namespace

std::span<const Operator> TextOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
