#include "shell/profiles/profile_file.hpp"

#include <google/protobuf/util/json_util.h>

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "base/status.hpp"
#include "proto/precision.hpp"
#include "shell/text/cat.hpp"
#include "shell/text/text.hpp"

namespace troupe::shell {

namespace {

constexpr char kHeader[] =
    "model_digest,gpu_kind,precision,sm_partition,quota_limit,batch,state,throughput,run_ns,p50_ns,p90_ns,"
    "p99_ns,runs,beside_load,reason,run_bytes";
constexpr std::size_t kColumns = 16;
// Files of versions that did not measure memory have all columns but the last one.
constexpr std::string_view kHeaderWithoutMemory(kHeader, sizeof(kHeader) - sizeof(",run_bytes"));

const char* StateName(proto::ProfileRowState state) {
  switch (state) {
    case proto::PROFILE_ROW_INTERPOLATED:
      return "interpolated";
    case proto::PROFILE_ROW_FAILED:
      return "failed";
    default:
      return "measured";
  }
}

std::string Quoted(std::string_view text) {
  return Cat("\"", absl::StrReplaceAll(ForAbsl(Printable(text)), {{"\"", "\"\""}}), "\"");
}

absl::Status WrongLine(std::size_t line, std::string_view what) {
  return absl::InvalidArgumentError(Cat("line ", line, ": ", what));
}

// The fields of one line; quotes around a field, and doubled inside of it.
absl::StatusOr<std::vector<std::string>> FieldsOf(std::string_view line, std::size_t number,
                                                  std::size_t columns) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') {
      if (quoted && i + 1 < line.size() && line[i + 1] == '"')
        fields.back() += line[++i];
      else
        quoted = !quoted;
    } else if (line[i] == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += line[i];
    }
  }
  if (quoted) return WrongLine(number, "a quote is not closed");
  if (fields.size() != columns)
    return WrongLine(number, Cat("it has ", fields.size(), " fields, and its header ", columns));
  fields.resize(kColumns, "0");
  return fields;
}

// The fields of one line, by their places in the header.
class RowReader {
 public:
  RowReader(const std::vector<std::string>& fields, std::size_t line) : fields_(fields), line_(line) {}

  template <class Number>
  absl::Status Whole(std::size_t column, const char* name, Number& out) const {
    std::uint64_t value = 0;
    if (!absl::SimpleAtoi(fields_[column], &value) || value > static_cast<std::uint64_t>(INT64_MAX) ||
        static_cast<std::uint64_t>(static_cast<Number>(value)) != value)
      return Wrong(column, name, "a whole number from 0 up");
    out = static_cast<Number>(value);
    return absl::OkStatus();
  }
  absl::Status Real(std::size_t column, const char* name, double& out) const {
    if (!absl::SimpleAtod(fields_[column], &out)) return Wrong(column, name, "a number");
    return absl::OkStatus();
  }
  absl::Status State(std::size_t column, proto::ProfileRow& row) const {
    for (const auto state :
         {proto::PROFILE_ROW_MEASURED, proto::PROFILE_ROW_INTERPOLATED, proto::PROFILE_ROW_FAILED}) {
      if (fields_[column] != StateName(state)) continue;
      row.set_state(state);
      return absl::OkStatus();
    }
    return Wrong(column, "state", "measured, interpolated or failed");
  }

 private:
  [[nodiscard]] absl::Status Wrong(std::size_t column, const char* name, const char* expected) const {
    return WrongLine(line_,
                     Cat(name, " is '", Shorten(Printable(fields_[column]), 40), "'; it is ", expected));
  }
  const std::vector<std::string>& fields_;
  std::size_t line_;
};

absl::StatusOr<proto::ProfileRow> RowOf(const std::vector<std::string>& fields, std::size_t line) {
  proto::ProfileRow row;
  const RowReader read(fields, line);
  std::uint32_t share = 0, quota = 0, batch = 0, beside = 0;
  std::int64_t run = 0, p50 = 0, p90 = 0, p99 = 0;
  std::uint64_t runs = 0, run_bytes = 0;
  double throughput = 0;
  TROUPE_RETURN_IF_ERROR(read.Whole(3, "sm_partition", share));
  TROUPE_RETURN_IF_ERROR(read.Whole(4, "quota_limit", quota));
  TROUPE_RETURN_IF_ERROR(read.Whole(5, "batch", batch));
  TROUPE_RETURN_IF_ERROR(read.State(6, row));
  TROUPE_RETURN_IF_ERROR(read.Real(7, "throughput", throughput));
  TROUPE_RETURN_IF_ERROR(read.Whole(8, "run_ns", run));
  TROUPE_RETURN_IF_ERROR(read.Whole(9, "p50_ns", p50));
  TROUPE_RETURN_IF_ERROR(read.Whole(10, "p90_ns", p90));
  TROUPE_RETURN_IF_ERROR(read.Whole(11, "p99_ns", p99));
  TROUPE_RETURN_IF_ERROR(read.Whole(12, "runs", runs));
  TROUPE_RETURN_IF_ERROR(read.Whole(13, "beside_load", beside));
  TROUPE_RETURN_IF_ERROR(read.Whole(15, "run_bytes", run_bytes));
  row.set_sm_partition(share);
  row.set_quota_limit(quota);
  row.set_batch(batch);
  row.set_throughput(throughput);
  row.set_run_ns(run);
  row.set_p50_ns(p50);
  row.set_p90_ns(p90);
  row.set_p99_ns(p99);
  row.set_runs(runs);
  row.set_beside_load(beside != 0);
  row.set_reason(fields[14]);
  row.set_run_bytes(run_bytes);
  return row;
}

absl::Status ReadLine(std::string_view line, std::size_t number, std::size_t columns,
                      proto::FunctionProfile& profile) {
  TROUPE_ASSIGN_OR_RETURN(const auto fields, FieldsOf(line, number, columns));
  const auto precision = proto::ParsePrecision(fields[2]);
  if (!precision)
    return WrongLine(number, Cat("precision is '", Shorten(Printable(fields[2]), 40), "'; it is one of ",
                                 NamesIn(proto::kPrecisions)));
  if (profile.rows().empty()) {
    profile.set_model_digest(fields[0]);
    profile.set_gpu_kind(fields[1]);
    profile.set_precision(*precision);
  } else if (profile.model_digest() != fields[0] || profile.gpu_kind() != fields[1] ||
             profile.precision() != *precision) {
    return WrongLine(number, "it is of another model, kind or precision; a file has one profile");
  }
  TROUPE_ASSIGN_OR_RETURN(*profile.add_rows(), RowOf(fields, number));
  return absl::OkStatus();
}

absl::StatusOr<proto::FunctionProfile> ReadCsv(std::string_view text) {
  proto::FunctionProfile profile;
  std::size_t number = 0, columns = kColumns;
  while (!text.empty()) {
    const auto end = text.find('\n');
    auto line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (++number == 1) {
      if (line == kHeaderWithoutMemory)
        --columns;
      else if (line != kHeader)
        return WrongLine(1, Cat("it is not the header of a profile: ", kHeader));
      continue;
    }
    if (line.empty()) continue;
    TROUPE_RETURN_IF_ERROR(ReadLine(line, number, columns, profile));
  }
  if (profile.rows().empty()) return WrongLine(number, "the file ends, and has no row");
  return profile;
}

absl::StatusOr<proto::FunctionProfile> ReadJson(const std::string& text) {
  proto::FunctionProfile profile;
  const auto read = google::protobuf::util::JsonStringToMessage(text, &profile);
  if (read.ok()) return profile;
  proto::AdminReply reply;
  const auto whole = google::protobuf::util::JsonStringToMessage(text, &reply);
  if (!whole.ok())
    return absl::InvalidArgumentError(
        Cat("it is not the JSON of a profile: ", Shorten(Printable(whole.message().ToString()), 200)));
  if (reply.profiles_size() == 1) return std::move(*reply.mutable_profiles(0));
  return absl::InvalidArgumentError(
      Cat("it has ", reply.profiles_size(), " profiles; a file that is imported has one"));
}

}  // namespace

std::string ProfileCsv(const proto::FunctionProfile& profile) {
  std::string out = Cat(kHeader, "\n");
  for (const auto& row : profile.rows()) {
    Append(&out, profile.model_digest(), ",", Quoted(profile.gpu_kind()), ",",
           std::string(proto::Name(profile.precision())), ",", row.sm_partition(), ",", row.quota_limit(),
           ",", row.batch(), ",", StateName(row.state()), ",", absl::StrFormat("%.17g", row.throughput()),
           ",", row.run_ns(), ",", row.p50_ns(), ",", row.p90_ns(), ",", row.p99_ns(), ",", row.runs(), ",",
           row.beside_load() ? 1 : 0, ",", Quoted(row.reason()), ",", row.run_bytes(), "\n");
  }
  return out;
}

absl::StatusOr<proto::FunctionProfile> ReadProfile(const std::string& text) {
  const auto begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return absl::InvalidArgumentError("it is empty");
  return text[begin] == '{' ? ReadJson(text) : ReadCsv(text);
}

}  // namespace troupe::shell
