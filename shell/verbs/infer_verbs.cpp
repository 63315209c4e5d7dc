// `infer`: one request, from files.
#include "shell/inference.hpp"
#include "shell/verbs/all_verbs.hpp"

namespace troupe::shell {

namespace {
absl::Status Infer(Session& session, const Arguments& arguments) {
  return RunInference(session, arguments, Target::kFunctionOrWorkflow);
}
}  // namespace

std::vector<Verb> InferVerbs() {
  return {
      {.name = "infer",
       .summary = "Run a function or workflow once, on inputs from files",
       .arguments =
           {{.name = "NAME", .kind = Kind::kServable, .help = "the function or workflow", .required = true},
            {.name = "--input",
             .kind = Kind::kTensorFile,
             .help = "NAME=FILE.npy, .pb or .json; FILE alone for an only input",
             .repeated = true},
            {.name = "--output",
             .kind = Kind::kTensorFile,
             .help = "save an output: NAME=FILE.npy; FILE.npy alone for an only output",
             .repeated = true},
            {.name = "--priority", .kind = Kind::kNumber, .help = "1 is the most urgent; 0: as 100"},
            {.name = "--version", .kind = Kind::kVersion, .help = "the version; the newest when absent"}},
       .run = Infer}};
}

}  // namespace troupe::shell
