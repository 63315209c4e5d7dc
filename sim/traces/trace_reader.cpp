#include "sim/traces/trace_reader.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status.hpp"

namespace troupe::sim {

namespace {

constexpr std::uint32_t kMostInAMinute = 10'000'000;
constexpr double kLongestTrace = 366.0 * 86400;
constexpr std::size_t kLargestText = std::size_t{1} << 30;

// One line of the table, with where its cells begin (columns count from 1, in characters).
struct Row {
  std::size_t line = 0;
  std::vector<absl::string_view> cells;
};

class Table {
 public:
  Table(std::string_view text, std::string name) : name_(std::move(name)) {
    std::size_t number = 0;
    for (absl::string_view line : absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
      ++number;
      if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
      if (absl::StripAsciiWhitespace(line).empty()) continue;
      rows_.push_back({number, absl::StrSplit(line, ',')});
    }
  }

  [[nodiscard]] const std::vector<Row>& rows() const { return rows_; }
  [[nodiscard]] absl::Status Wrong(const Row& row, std::size_t cell, const std::string& expected) const {
    std::size_t column = 1;
    for (std::size_t i = 0; i < cell && i < row.cells.size(); ++i) column += row.cells[i].size() + 1;
    if (cell >= row.cells.size()) --column;  // no comma behind the last
    const auto found = cell < row.cells.size() ? absl::StrCat("'", std::string(row.cells[cell]), "'")
                                               : std::string("the end of the line");
    return absl::InvalidArgumentError(
        absl::StrCat(name_, ":", row.line, ":", column, ": found ", found, ", expected ", expected));
  }
  [[nodiscard]] absl::Status Empty() const {
    return absl::InvalidArgumentError(
        absl::StrCat(name_, ":1:1: found nothing, expected a line that names the columns"));
  }
  [[nodiscard]] absl::Status CheckWidth(const Row& row) const {
    const std::size_t width = rows_.front().cells.size();
    if (row.cells.size() == width) return absl::OkStatus();
    return Wrong(row, std::min(row.cells.size(), width),
                 absl::StrCat(width, " cells as in line ", rows_.front().line, ", not ", row.cells.size()));
  }

 private:
  const std::string name_;
  std::vector<Row> rows_;
};

// "m3", "3_minute", "3": the number; empty for another column.
std::optional<std::uint32_t> MinuteOf(absl::string_view column) {
  if (!column.empty() && column.front() == 'm') column.remove_prefix(1);
  absl::ConsumeSuffix(&column, "_minute");
  std::uint32_t minute = 0;
  const auto [end, error] = std::from_chars(column.data(), column.data() + column.size(), minute);
  if (column.empty() || error != std::errc() || end != column.data() + column.size()) return std::nullopt;
  return minute;
}

struct Columns {
  std::optional<std::size_t> function, model, seconds;
  std::vector<std::size_t> minutes;
};

absl::StatusOr<Columns> FindColumns(const Table& table) {
  if (table.rows().empty()) return table.Empty();
  const Row& header = table.rows().front();
  Columns columns;
  std::optional<std::uint32_t> last;
  for (std::size_t i = 0; i < header.cells.size(); ++i) {
    const auto cell = absl::StripAsciiWhitespace(header.cells[i]);
    if (cell == "function" || cell == "func" || cell == "HashFunction") {
      columns.function = i;
    } else if (cell == "model" || cell == "table1_model") {
      columns.model = i;
    } else if (cell == "seconds") {
      columns.seconds = i;
    } else if (const auto minute = MinuteOf(cell)) {
      if (last && *minute != *last + 1)
        return table.Wrong(header, i,
                           absl::StrCat("minute ", *last + 1, ": the minutes stand in order, without gaps"));
      last = minute;
      columns.minutes.push_back(i);
    }
  }
  if (!columns.function)
    return table.Wrong(header, 0, "a column called function, func or HashFunction in the first line");
  if (columns.minutes.empty() && !columns.seconds)
    return table.Wrong(header, header.cells.size(),
                       "columns of minutes (m1, m2, ...; 1_minute, ...; 1, 2, ...), or one called seconds");
  return columns;
}

absl::StatusOr<TraceFunction> FunctionOf(const Table& table, const Row& row, const Columns& columns) {
  TraceFunction function;
  function.name = std::string(absl::StripAsciiWhitespace(row.cells[*columns.function]));
  if (function.name.empty()) return table.Wrong(row, *columns.function, "a name");
  if (columns.model) function.model = std::string(absl::StripAsciiWhitespace(row.cells[*columns.model]));
  return function;
}

absl::StatusOr<std::uint32_t> CountOf(const Table& table, const Row& row, std::size_t cell) {
  const auto text = absl::StripAsciiWhitespace(row.cells[cell]);
  std::uint32_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || count > kMostInAMinute)
    return table.Wrong(row, cell,
                       absl::StrCat("a number of requests: an integer from 0 to ", kMostInAMinute));
  return count;
}

absl::StatusOr<MinuteCounts> ReadCounts(const Table& table, const Columns& columns) {
  MinuteCounts out;
  std::map<std::string, std::size_t> seen;
  for (std::size_t i = 1; i < table.rows().size(); ++i) {
    const Row& row = table.rows()[i];
    TROUPE_RETURN_IF_ERROR(table.CheckWidth(row));
    TROUPE_ASSIGN_OR_RETURN(auto function, FunctionOf(table, row, columns));
    if (const auto [it, added] = seen.emplace(function.name, row.line); !added)
      return table.Wrong(row, *columns.function,
                         absl::StrCat("a function that line ", it->second, " does not have"));
    out.functions.push_back(std::move(function));
    auto& counts = out.counts.emplace_back();
    for (const std::size_t cell : columns.minutes) {
      TROUPE_ASSIGN_OR_RETURN(const auto count, CountOf(table, row, cell));
      counts.push_back(count);
    }
  }
  return out;
}

absl::StatusOr<Workload> ReadArrivals(const Table& table, const Columns& columns) {
  Workload out;
  std::map<std::string, std::uint32_t> index;
  for (std::size_t i = 1; i < table.rows().size(); ++i) {
    const Row& row = table.rows()[i];
    TROUPE_RETURN_IF_ERROR(table.CheckWidth(row));
    TROUPE_ASSIGN_OR_RETURN(auto function, FunctionOf(table, row, columns));
    const auto text = absl::StripAsciiWhitespace(row.cells[*columns.seconds]);
    double seconds = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
    if (text.empty() || error != std::errc() || end != text.data() + text.size() || !(seconds >= 0) ||
        seconds > kLongestTrace)
      return table.Wrong(row, *columns.seconds, "seconds since the begin: a number that is not negative");
    const auto [it, added] = index.emplace(function.name, static_cast<std::uint32_t>(out.functions.size()));
    if (added) {
      out.functions.push_back(std::move(function));
    } else if (out.functions[it->second].model != function.model) {
      return table.Wrong(row, *columns.model,
                         absl::StrCat("'", out.functions[it->second].model, "', its model further up"));
    }
    out.arrivals.push_back({FromSeconds(seconds), it->second});
  }
  std::ranges::stable_sort(out.arrivals, {}, &Arrival::at);
  if (!out.arrivals.empty()) out.length = out.arrivals.back().at;
  return out;
}

// The text of a file, whether it is compressed or not.
absl::StatusOr<std::string> Unpacked(const std::string& path) {
  const std::unique_ptr<gzFile_s, decltype(&gzclose)> file(gzopen(path.c_str(), "rb"), &gzclose);
  std::string text;
  std::array<char, 1 << 16> buffer{};
  int got = 0;
  while (file && (got = gzread(file.get(), buffer.data(), buffer.size())) > 0 && text.size() <= kLargestText)
    text.append(buffer.data(), static_cast<std::size_t>(got));
  int error = Z_OK;
  if (file) gzerror(file.get(), &error);
  if (!file || got < 0 || (error != Z_OK && error != Z_STREAM_END))
    return absl::InvalidArgumentError(
        absl::StrCat(path, " cannot be unpacked: it is cut off or damaged; get it again"));
  if (text.size() > kLargestText)
    return absl::InvalidArgumentError(
        absl::StrCat(path, " unpacks to more than ", kLargestText >> 20, " MiB, expected a trace"));
  return text;
}

}  // namespace

absl::StatusOr<std::variant<MinuteCounts, Workload>> ParseTrace(std::string_view text,
                                                                const std::string& name) {
  const Table table(text, name);
  TROUPE_ASSIGN_OR_RETURN(const auto columns, FindColumns(table));
  if (columns.seconds) {
    TROUPE_ASSIGN_OR_RETURN(auto arrivals, ReadArrivals(table, columns));
    return arrivals;
  }
  TROUPE_ASSIGN_OR_RETURN(auto counts, ReadCounts(table, columns));
  return counts;
}

absl::StatusOr<std::variant<MinuteCounts, Workload>> ReadTrace(const std::string& path) {
  if (!std::ifstream(path, std::ios::binary))
    return absl::NotFoundError(absl::StrCat("there is no trace ", path, " that can be read"));
  TROUPE_ASSIGN_OR_RETURN(const auto text, Unpacked(path));
  return ParseTrace(text, path);
}

absl::StatusOr<Spread> ParseSpread(const std::string& name) {
  if (name == "uniform") return Spread::kUniform;
  if (name == "even") return Spread::kEven;
  if (name == "poisson") return Spread::kPoisson;
  return absl::InvalidArgumentError(
      absl::StrCat("'", name, "' is not a valid spread; choose one of: uniform, even, poisson"));
}

}  // namespace troupe::sim
