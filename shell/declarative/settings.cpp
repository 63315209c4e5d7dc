#include "shell/declarative/settings.hpp"

#include <array>
#include <charconv>
#include <map>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/quantity.hpp"
#include "base/status.hpp"
#include "proto/gpu_sharing.hpp"
#include "proto/isolation.hpp"
#include "proto/precision.hpp"
#include "proto/stage_wish.hpp"
#include "shell/text/cat.hpp"

namespace troupe::shell {

namespace {

absl::Status ReadObjective(const YamlMap& map, proto::DeployRequest& deploy) {
  if (map.Has("deadline")) {
    TROUPE_ASSIGN_OR_RETURN(const auto deadline, map.Time("deadline"));
    deploy.mutable_slo()->set_deadline_ns(deadline.count());
  }
  if (map.Has("percentile")) {
    TROUPE_ASSIGN_OR_RETURN(const auto percentile, map.Number("percentile"));
    if (!(percentile > 1 && percentile <= 100))
      return map.Wrong("percentile", "percent above 1 and up to 100 are expected, like 98");
    deploy.mutable_slo()->set_percentile(percentile);
  }
  return absl::OkStatus();
}

absl::Status ReadComputeSettings(const YamlMap& map, proto::DeployRequest& deploy) {
  if (map.Has("precision")) {
    TROUPE_ASSIGN_OR_RETURN(const auto name, map.Text("precision"));
    const auto precision = proto::ParsePrecision(name);
    if (!precision) return map.Wrong("precision", Cat("it is one of ", NamesIn(proto::kPrecisions)));
    deploy.set_precision(*precision);
  }
  if (map.Has("run_limit")) {
    TROUPE_ASSIGN_OR_RETURN(const auto limit, map.Time("run_limit"));
    if (limit < std::chrono::milliseconds(1) || limit > std::chrono::hours(1))
      return map.Wrong("run_limit", "a time from 1ms to 1h is expected, like 5s");
    deploy.set_run_limit_ns(limit.count());
  }
  return absl::OkStatus();
}

absl::Status ReadSharingSettings(const YamlMap& map, proto::DeployRequest& deploy) {
  for (const auto& field : proto::kSharingFields) {
    const std::string key(field.name);
    if (!map.Has(key)) continue;
    TROUPE_ASSIGN_OR_RETURN(const auto text, map.Text(key));
    const auto value = ParseQuantity(text, QuantityOf(field));
    if (!value) return map.Wrong(key, Cat(ExpectedOf(QuantityOf(field)), " is expected"));
    proto::Declare(*deploy.mutable_sharing(), field, *value);
  }
  return absl::OkStatus();
}

absl::Status ReadIsolationSettings(const YamlMap& map, proto::DeployRequest& deploy) {
  if (map.Has("tenant")) {
    TROUPE_ASSIGN_OR_RETURN(*deploy.mutable_tenant(), map.Text("tenant"));
  }
  if (!map.Has("isolation")) return absl::OkStatus();
  TROUPE_ASSIGN_OR_RETURN(const auto name, map.Text("isolation"));
  const auto isolation = proto::ParseIsolation(name);
  if (!isolation) return map.Wrong("isolation", Cat("it is one of ", NamesIn(proto::kIsolations)));
  deploy.set_isolation(*isolation);
  return absl::OkStatus();
}

absl::Status ReadStateSetting(const YamlMap& map, proto::DeployRequest& deploy) {
  if (!map.Has("state")) return absl::OkStatus();
  const auto node = map.Node("state");
  if (!node.IsMap())
    return map.Wrong("state", "a mapping of inputs to outputs is expected, like past: present");
  deploy.clear_state();
  for (const auto& entry : node) {
    if (!entry.first.IsScalar() || !entry.second.IsScalar() || entry.second.Scalar().empty())
      return map.Wrong("state", "a mapping of inputs to outputs is expected, like past: present");
    auto& tensor = *deploy.add_state();
    tensor.set_input(entry.first.Scalar());
    tensor.set_output(entry.second.Scalar());
  }
  return absl::OkStatus();
}

absl::Status ReadReplicasSetting(const YamlMap& map, proto::DeployRequest& deploy) {
  if (!map.Has("state_replicas")) return absl::OkStatus();
  TROUPE_ASSIGN_OR_RETURN(const auto text, map.Text("state_replicas"));
  if (text.size() != 1 || text[0] < '0' || text[0] > '3')
    return map.Wrong("state_replicas", "a number from 0 to 3 is expected, of nodes with copies of its state");
  deploy.set_state_replicas(static_cast<std::uint32_t>(text[0] - '0'));
  if (deploy.state_replicas() > 0 && deploy.state().empty())
    return map.Wrong("state_replicas", "the function keeps no state: name its 'state' too");
  return absl::OkStatus();
}

absl::Status ReadStageSetting(const YamlMap& map, proto::DeployRequest& deploy) {
  if (!map.Has("stage_memory")) return absl::OkStatus();
  TROUPE_ASSIGN_OR_RETURN(const auto text, map.Text("stage_memory"));
  const auto bytes = ParseQuantity(text, proto::kStageMemory);
  if (!bytes) return map.Wrong("stage_memory", Cat(ExpectedOf(proto::kStageMemory), " is expected"));
  deploy.set_stage_memory(*bytes);
  return absl::OkStatus();
}

std::string ShortestNumber(double number) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number).ptr;
  return {text.data(), end};
}

// By key, as YAML has them; without those that are as without a setting.
std::map<std::string, std::string> SettingsOf(const proto::FunctionRecord& record) {
  std::map<std::string, std::string> settings;
  if (record.slo().deadline_ns() > 0) settings["deadline"] = ExactTime(record.slo().deadline_ns());
  if (record.slo().percentile() > 0) settings["percentile"] = ShortestNumber(record.slo().percentile());
  if (!record.tenant().empty()) settings["tenant"] = YamlText(record.tenant());
  for (const auto& [name, isolation] : proto::kIsolations)
    if (record.isolation() == isolation) settings["isolation"] = std::string(name);
  if (record.precision() != proto::PRECISION_FP32)
    settings["precision"] = std::string(proto::Name(record.precision()));
  for (const auto& field : proto::kSharingFields)
    if (const auto value = proto::Declared(record.sharing(), field); value > 0)
      settings[std::string(field.name)] = FormatQuantity(value, QuantityOf(field));
  if (record.stage().memory() > 0)
    settings["stage_memory"] = FormatQuantity(record.stage().memory(), proto::kStageMemory);
  if (record.run_limit_ns() > 0) settings["run_limit"] = ExactTime(record.run_limit_ns());
  if (!record.state().empty())
    settings["state"] =
        Cat("{",
            absl::StrJoin(record.state(), ", ",
                          [](std::string* out, const proto::StateTensor& tensor) {
                            Append(out, YamlText(tensor.input()), ": ", YamlText(tensor.output()));
                          }),
            "}");
  if (record.state_replicas() > 0)
    settings["state_replicas"] = ShortestNumber(static_cast<double>(record.state_replicas()));
  return settings;
}

}  // namespace

const std::vector<std::string>& SettingKeys() {
  static const std::vector<std::string> kKeys = [] {
    std::vector<std::string> keys = {"deadline", "percentile", "tenant", "isolation", "precision"};
    for (const auto& field : proto::kSharingFields) keys.emplace_back(field.name);
    keys.insert(keys.end(), {"stage_memory", "run_limit", "state", "state_replicas"});
    return keys;
  }();
  return kKeys;
}

absl::Status ReadSettings(const YamlMap& map, proto::DeployRequest& deploy) {
  TROUPE_RETURN_IF_ERROR(ReadObjective(map, deploy));
  TROUPE_RETURN_IF_ERROR(ReadComputeSettings(map, deploy));
  TROUPE_RETURN_IF_ERROR(ReadSharingSettings(map, deploy));
  TROUPE_RETURN_IF_ERROR(ReadStageSetting(map, deploy));
  TROUPE_RETURN_IF_ERROR(ReadIsolationSettings(map, deploy));
  TROUPE_RETURN_IF_ERROR(ReadStateSetting(map, deploy));
  return ReadReplicasSetting(map, deploy);
}

absl::Status CheckSharing(const YamlMap& map, const proto::DeployRequest& deploy) {
  const auto fault = proto::FaultIn(deploy.sharing());
  return fault ? WrongAt(map.PlaceOf(std::string(fault->field)), fault->why) : absl::OkStatus();
}

proto::FunctionRecord RecordOf(const proto::DeployRequest& wish) {
  proto::FunctionRecord record;
  *record.mutable_slo() = wish.slo();
  record.set_tenant(wish.tenant());
  record.set_isolation(wish.isolation());
  record.set_precision(wish.precision());
  if (wish.has_sharing()) *record.mutable_sharing() = wish.sharing();
  if (wish.stage_memory() > 0) record.mutable_stage()->set_memory(wish.stage_memory());
  record.set_run_limit_ns(wish.run_limit_ns());
  *record.mutable_state() = wish.state();
  record.set_state_replicas(wish.state_replicas());
  return record;
}

std::vector<std::string> DifferencesOf(const proto::FunctionRecord& record,
                                       const proto::DeployRequest& wish) {
  auto wanted = RecordOf(wish);
  if (wish.slo().deadline_ns() == 0) wanted.mutable_slo()->set_deadline_ns(record.slo().deadline_ns());
  if (wish.slo().percentile() == 0) wanted.mutable_slo()->set_percentile(record.slo().percentile());
  auto before = SettingsOf(record);
  auto after = SettingsOf(wanted);
  std::vector<std::string> differences;
  for (const auto& key : SettingKeys()) {
    auto& from = before[key];
    auto& to = after[key];
    if (from != to)
      differences.push_back(Cat(key, ": ", from.empty() ? "-" : from, " -> ", to.empty() ? "-" : to));
  }
  return differences;
}

std::vector<std::string> SettingLines(const proto::FunctionRecord& record) {
  std::vector<std::string> lines;
  auto settings = SettingsOf(record);
  for (const auto& key : SettingKeys())
    if (const auto found = settings.find(key); found != settings.end())
      lines.push_back(Cat(key, ": ", found->second));
  return lines;
}

std::string YamlText(const std::string& text) {
  constexpr char kUnquoted[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/";
  const bool plain =
      !text.empty() && text.front() != '-' && text.find_first_not_of(kUnquoted) == std::string::npos;
  if (plain) return text;
  std::string quoted = "\"";
  for (const char one : text) {
    if (one == '"' || one == '\\') {
      quoted += '\\';
      quoted += one;
    } else if (static_cast<unsigned char>(one) < 0x20 || one == 0x7f) {
      absl::StrAppendFormat(&quoted, "\\x%02x", static_cast<unsigned>(one));
    } else {
      quoted += one;
    }
  }
  return quoted + "\"";
}

std::string ExactTime(std::int64_t nanoseconds) {
  constexpr std::pair<std::int64_t, const char*> kTimeUnits[] = {
      {3'600'000'000'000, "h"}, {60'000'000'000, "m"}, {1'000'000'000, "s"},
      {1'000'000, "ms"},        {1'000, "us"},         {1, "ns"}};
  for (const auto& [size, unit] : kTimeUnits)
    if (nanoseconds % size == 0) return Cat(nanoseconds / size, unit);
  return {};
}

}  // namespace troupe::shell
