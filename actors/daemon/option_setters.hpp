// How options of each kind are set from their text and shown in it: texts, choices, sizes, times, numbers,
// switches and policies. Private to the table of options (config.cpp).
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "actors/daemon/config.hpp"
#include "base/enum_names.hpp"
#include "base/policy.hpp"
#include "base/status.hpp"

namespace troupe::actors {

inline absl::Status Wrong(const std::string& found, const std::string& expected) {
  return absl::InvalidArgumentError(absl::StrCat("found '", found, "', expected ", expected));
}

// A field of one of the configuration's structs, for reading and for writing.
template <class T>
struct Field {
  Field(T DaemonConfig::*field)
      : of([field](const DaemonConfig& config) -> const T& { return config.*field; }),
        in([field](DaemonConfig& config) -> T& { return config.*field; }) {}
  template <class Part, class Owner>
  Field(Part DaemonConfig::*part, T Owner::*field)
      : of([=](const DaemonConfig& config) -> const T& { return config.*part.*field; }),
        in([=](DaemonConfig& config) -> T& { return config.*part.*field; }) {}
  template <class Part, class Inner>
  Field(Part DaemonConfig::*part, Inner Part::*inner, T Inner::*field)
      : of([=](const DaemonConfig& config) -> const T& { return config.*part.*inner.*field; }),
        in([=](DaemonConfig& config) -> T& { return config.*part.*inner.*field; }) {}

  std::function<const T&(const DaemonConfig&)> of;
  std::function<T&(DaemonConfig&)> in;
};

// As an option's text is written.
inline std::string Plain(const std::string& formatted) {
  return absl::StrReplaceAll(formatted, {{" ", ""}});
}
inline OptionSetter::Show Shown(const Field<std::string>& field) {
  return field.of;
}
inline OptionSetter::Show Shown(const Field<Duration>& field) {
  return [field](const DaemonConfig& config) {
    return field.of(config) == Duration::zero() ? "0s" : Plain(FormatDuration(field.of(config)));
  };
}

inline OptionSetter Text(const Field<std::string>& field) {
  return {[field](const std::string& value, DaemonConfig& config) {
            field.in(config) = value;
            return absl::OkStatus();
          },
          Shown(field)};
}
// A path that has a default: an empty one would be the folder in which the daemon happens to start.
inline OptionSetter Directory(const Field<std::string>& field) {
  return {[field](const std::string& value, DaemonConfig& config) {
            if (value.empty()) return Wrong(value, "a directory; leave the option out for the default");
            field.in(config) = value;
            return absl::OkStatus();
          },
          Shown(field)};
}
// One of an enum's values, by its name.
template <class Enum>
OptionSetter Choice(const Field<Enum>& field, std::vector<EnumName<Enum>> values) {
  return {[field, values](const std::string& text, DaemonConfig& config) {
            for (const auto& [name, value] : values) {
              if (name != text) continue;
              field.in(config) = value;
              return absl::OkStatus();
            }
            return Wrong(text,
                         absl::StrCat("one of ", absl::StrJoin(values, ", ", [](auto* out, const auto& one) {
                                        out->append(one.first);
                                      })));
          },
          [field, values](const DaemonConfig& config) {
            for (const auto& [name, value] : values)
              if (value == field.of(config)) return std::string(name);
            return std::string();
          }};
}
// The names stand beside the enum.
template <class Enum, std::size_t N>
OptionSetter Choice(const Field<Enum>& field, const std::array<EnumName<Enum>, N>& table) {
  return Choice<Enum>(field, {table.begin(), table.end()});
}
template <class Enum>
OptionSetter Choice(const Field<Enum>& field, std::span<const PolicyEntry<Enum>> table) {
  std::vector<EnumName<Enum>> values;
  for (const auto& entry : table) values.emplace_back(entry.name, entry.policy);
  return Choice<Enum>(field, std::move(values));
}
// Less holds nothing of use, and is a unit that was forgotten.
constexpr Bytes kLeastSize = MiB(1);
inline OptionSetter Size(const Field<Bytes>& field) {
  return {[field](const std::string& value, DaemonConfig& config) {
            Bytes size;
            if (!ParseBytes(value, size)) return Wrong(value, "a size such as 512MiB or 4GiB");
            if (size < kLeastSize)
              return Wrong(
                  value,
                  "a size of 1MiB at least, such as 512MiB or 4GiB (a number without a unit is bytes)");
            field.in(config) = size;
            return absl::OkStatus();
          },
          [field](const DaemonConfig& config) { return Plain(FormatBytes(field.of(config))); }};
}
// Of options that have no meaning at zero.
inline OptionSetter Time(const Field<Duration>& field) {
  return {[field](const std::string& value, DaemonConfig& config) {
            Duration time{};
            if (!ParseDuration(value, time) || time <= Duration::zero())
              return Wrong(value, "a time such as 100ms or 30s");
            field.in(config) = time;
            return absl::OkStatus();
          },
          Shown(field)};
}
inline OptionSetter Time(const Field<Duration>& field, Duration least, Duration most) {
  return {[field, least, most](const std::string& value, DaemonConfig& config) {
            Duration time{};
            if (!ParseDuration(value, time) || time < least || time > most)
              return Wrong(value,
                           absl::StrCat("a time from ", FormatDuration(least), " to ", FormatDuration(most)));
            field.in(config) = time;
            return absl::OkStatus();
          },
          Shown(field)};
}
inline OptionSetter TimeOrZero(const Field<Duration>& field) {
  return {[field](const std::string& value, DaemonConfig& config) {
            Duration time{};
            if (!ParseDuration(value, time) || time < Duration::zero())
              return Wrong(value, "a time such as 5s, or 0s");
            field.in(config) = time;
            return absl::OkStatus();
          },
          Shown(field)};
}
template <class Integer>
OptionSetter WholeNumber(const Field<Integer>& field, Integer low, Integer high) {
  return {[field, low, high](const std::string& value, DaemonConfig& config) {
            Integer number = 0;
            if (!absl::SimpleAtoi(value, &number) || number < low || number > high)
              return Wrong(value, absl::StrCat("a whole number from ", low, " to ", high));
            field.in(config) = number;
            return absl::OkStatus();
          },
          [field](const DaemonConfig& config) { return absl::StrCat(field.of(config)); }};
}
inline OptionSetter Number(const Field<unsigned>& field, unsigned low, unsigned high) {
  return WholeNumber<unsigned>(field, low, high);
}
inline OptionSetter Number(const Field<std::uint64_t>& field, std::uint64_t low, std::uint64_t high) {
  return WholeNumber<std::uint64_t>(field, low, high);
}
inline OptionSetter Decimal(const Field<double>& field, double low, double high) {
  return {[field, low, high](const std::string& value, DaemonConfig& config) {
            double number = 0;
            // A comparison with what is not a number is false.
            if (!absl::SimpleAtod(value, &number) || !(number >= low && number <= high))
              return Wrong(value, absl::StrCat("a number from ", low, " to ", high));
            field.in(config) = number;
            return absl::OkStatus();
          },
          [field](const DaemonConfig& config) { return absl::StrCat(field.of(config)); }};
}
inline OptionSetter Switch(const Field<bool>& field) {
  return {[field](const std::string& value, DaemonConfig& config) {
            if (value != "true" && value != "false") return Wrong(value, "true or false");
            field.in(config) = value == "true";
            return absl::OkStatus();
          },
          {}};
}
// `find` looks into the slot's table, so that a wrong name is told with its line.
template <class Find>
OptionSetter Policy(std::string PolicyNames::*slot, Find find) {
  return {[slot, find](const std::string& value, DaemonConfig& config) {
            TROUPE_RETURN_IF_ERROR(find(value).status());
            config.policies.slots.*slot = value;
            return absl::OkStatus();
          },
          {}};
}

}  // namespace troupe::actors
