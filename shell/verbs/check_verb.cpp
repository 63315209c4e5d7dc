// `function check`: judges an ONNX file on the caller's machine, as the manager would when it is deployed. Asks no
// cluster. The importer is a program of its own, so that the shell does not carry the ONNX library.
#include <boost/json.hpp>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/units.hpp"
#include "shell/child_program.hpp"
#include "shell/exit_code.hpp"
#include "shell/inputs/files.hpp"
#include "shell/session.hpp"
#include "shell/text/cat.hpp"
#include "shell/verbs/all_verbs.hpp"

namespace troupe::shell {

namespace {

namespace json = boost::json;

constexpr char kImporter[] = "troupe-import";

// The last line of what the importer printed; those before it say how far it was.
std::string LastLine(const std::string& text) {
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  return lines.empty() ? std::string() : lines.back();
}

std::string Specs(const char* label, const json::value& specs) {
  std::string out;
  for (const auto& spec : specs.as_array())
    Append(&out, out.empty() ? label : "           ", Printable(std::string(spec.at("name").as_string())),
           "  ", std::string(spec.at("datatype").as_string()), " ", json::serialize(spec.at("shape")), "\n");
  return out;
}

std::string Operators(const json::value& operators) {
  return absl::StrJoin(operators.as_object(), ", ", [](std::string* out, const auto& one) {
    Append(out, Printable(std::string(one.key())), " ", json::serialize(one.value()));
  });
}

// What CUDA GPUs would refuse although the file can be deployed. An importer of another release does not say it.
std::string CudaLines(const json::object& report) {
  if (const json::value* unknown = report.if_contains("cuda_unknown"))
    return Cat("CUDA GPUs  it is not known whether they run it: ",
               Printable(std::string(unknown->as_string())), "\n");
  const json::value* refused = report.if_contains("cuda_refused");
  if (refused == nullptr) return {};
  if (refused->as_array().empty()) return "CUDA GPUs  every step has a kernel\n";
  std::string out;
  for (const auto& line : refused->as_array())
    Append(&out, out.empty() ? "CUDA GPUs  would refuse it: " : "           ",
           Printable(std::string(line.as_string())), "\n");
  Append(&out,
         "           serve it on virtual GPUs, which run all of it, or export it without these steps\n");
  return out;
}

std::string ReportText(const std::string& file, const json::value& report) {
  const json::value* operators = report.as_object().if_contains("operators");
  const auto steps = report.at("steps").to_number<std::uint64_t>();
  return Cat(
      Printable(file), " can be deployed: ", steps, steps == 1 ? " step" : " steps",
      " after simplification, ", FormatBytes(Bytes(report.at("weights_bytes").to_number<std::uint64_t>())),
      " of weights\n", Specs("inputs     ", report.at("inputs")), Specs("outputs    ", report.at("outputs")),
      "operators  ", operators == nullptr ? "-" : Operators(*operators), "\n", CudaLines(report.as_object()));
}

absl::Status FunctionCheck(Session& session, const Arguments& arguments) {
  const auto found = FindOnnxFile(arguments.Text("FILE"));
  if (!found.ok()) return AsUsageError(found.status());
  const auto& file = *found;
  const auto importer = FindHelper(kImporter);
  if (importer.empty())
    return UsageError(Cat(kImporter,
                          " is not on this machine; it comes with the package troupe-daemon (from source: "
                          "`make build`)"));
  // The file is the caller's own: a machine whose kernel has no jail checks it all the same.
  const auto child = RunChild(importer, {"--check", "--sandbox", "best-effort", "--onnx", file});
  if (!child.ok()) return AsUsageError(child.status());
  if (child->exit != 0) {
    const auto why = LastLine(child->err);
    return UsageError(Cat("'", Printable(file), "' would be refused: ",
                          why.empty() ? Cat("the importer ended with ", child->exit)
                                      : Printable(std::string(absl::StripPrefix(why, "troupe-import: ")))));
  }
  const auto line = LastLine(child->out);
  if (session.json()) return session.out() << line << '\n', absl::OkStatus();
  try {
    session.out() << ReportText(file, json::parse(line));
  } catch (const std::exception&) {
    return UsageError(Cat(importer.string(), " is of another release: its report is not understood"));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<Verb> CheckVerbs() {
  return {{.group = "function",
           .name = "check",
           .summary = "Judge an ONNX file on this machine, as a deployment would; nothing is sent",
           .arguments = {{.name = "FILE",
                          .kind = Kind::kFile,
                          .help = "the ONNX file, or the folder of one",
                          .required = true}},
           .run = FunctionCheck}};
}

}  // namespace troupe::shell
