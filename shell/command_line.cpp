#include "shell/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/nearest.hpp"
#include "base/status.hpp"
#include "proto/version.hpp"
#include "shell/companions.hpp"
#include "shell/inputs/json_tensor.hpp"
#include "shell/inputs/tensor_values.hpp"
#include "shell/known_words.hpp"
#include "shell/text/cat.hpp"

namespace troupe::shell {

namespace {

constexpr std::size_t kMostEchoed = 160;  // columns of the command in front of an error

std::string WrongAddress(const std::string& value) {
  const auto colon = value.rfind(':');
  int port = 0;
  if (colon != std::string::npos && colon > 0 && absl::SimpleAtoi(value.substr(colon + 1), &port) &&
      port > 0 && port < 65536)
    return "";
  return Cat("'", value, "' is not a valid address; write HOST:PORT");
}

void AddArguments(CLI::App& app, const std::vector<Argument>& arguments) {
  for (const auto& argument : arguments) {
    const std::string help = argument.help;
    if (argument.kind == Kind::kFlag) {
      app.add_flag(argument.name, help);
      continue;
    }
    auto* option =
        app.add_option(argument.name, CLI::callback_t([](const CLI::results_t&) { return true; }), help);
    option->required(argument.required);
    option->type_name(argument.kind == Kind::kDuration                                    ? "TIME"
                      : argument.kind == Kind::kNumber || argument.kind == Kind::kVersion ? "N"
                                                                                          : "TEXT");
    if (argument.repeated)
      option->expected(1, CLI::detail::expected_max_vector_size)->allow_extra_args(false);
    const Kind kind = argument.kind;
    option->check([kind](const std::string& value) { return WrongFor(kind, value); }, "", "");
  }
}

Arguments Collect(const CLI::App& app, const std::vector<Argument>& arguments) {
  Arguments collected;
  for (const auto& argument : arguments) {
    const auto* option = app.get_option_no_throw(argument.name);
    if (option != nullptr && option->count() > 0) collected.Set(argument.name, option->results());
  }
  return collected;
}

std::unique_ptr<CLI::App> MakeParser() {
  auto app = std::make_unique<CLI::App>("Serves functions from few GPUs: command line and shell of a cluster",
                                        "troupe");
  app->fallthrough();
  app->require_subcommand(1);
  app->set_version_flag("--version", proto::VersionText("troupe"));
  AddArguments(*app, GlobalArguments());
  app->get_option("--manager")->check(WrongAddress, "", "");
  std::map<std::string, CLI::App*> groups;
  for (const auto& verb : Verbs()) {
    CLI::App* parent = app.get();
    if (!verb.group.empty()) {
      auto*& group = groups[verb.group];
      if (group == nullptr) {
        group = parent->add_subcommand(verb.group, GroupSummary(verb.group));
        group->require_subcommand(1);
      }
      parent = group;
    }
    AddArguments(*parent->add_subcommand(verb.name, verb.summary), verb.arguments);
  }
  app->add_subcommand("shell", "An interactive shell with history and completion; or commands from a pipe");
  return app;
}

const CLI::App* Chosen(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? nullptr : chosen.front();
}

// The options that a command takes, its groups' and everybody's included.
std::vector<std::string> OptionsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* at = &app; at != nullptr; at = Chosen(*at))
    for (const auto* option : at->get_options())
      for (const auto& name : option->get_lnames()) names.push_back(Cat("--", name));
  return names;
}

// "'--dedline' is not an option of it; did you mean '--deadline'?"; empty when another word is too many.
std::string UnknownOption(const CLI::App& app, const std::vector<std::string>& words) {
  const auto known = OptionsOf(app);
  for (const auto& word : words) {
    const auto name = word.substr(0, word.find('='));
    if (!absl::StartsWith(name, "--") || absl::c_linear_search(known, name)) continue;
    const auto meant = DidYouMean(name, known);
    return Cat("'", Printable(name), "' is not an option of it", meant.empty() ? ";" : Cat(meant));
  }
  return "";
}

// What is wrong with the words, and whose help to read.
absl::Status Explain(const CLI::App& app, const CLI::ParseError& error,
                     const std::vector<std::string>& given) {
  const auto words = WithoutOptions(given);
  const bool of_value = dynamic_cast<const CLI::ValidationError*>(&error) != nullptr;
  const bool of_option = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && words.empty();
  if (!of_value && !of_option) TROUPE_RETURN_IF_ERROR(CheckWords(words));
  std::string path;
  for (const CLI::App* at = Chosen(app); at != nullptr; at = Chosen(*at)) Append(&path, " ", at->get_name());
  const auto see = Cat(" see 'troupe", path, " --help'");
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr)
    if (const auto unknown = UnknownOption(app, given); !unknown.empty()) return UsageError(unknown + see);
  const auto what = absl::StrReplaceAll(error.what(), {{"\n", " "}});
  return UsageError(Cat(Printable(what), ";", see));
}

absl::StatusOr<GlobalOptions> Globals(const CLI::App& app, const GlobalOptions& defaults) {
  const Arguments given = Collect(app, GlobalArguments());
  GlobalOptions options = defaults;
  if (given.Has("--manager")) options.manager = given.Text("--manager");
  if (given.Has("--tls-dir")) options.tls_dir = given.Text("--tls-dir");
  options.insecure_network = options.insecure_network || given.Has("--insecure-network");
  if (given.Has("--timeout")) options.timeout = given.DurationOr("--timeout", Duration::zero());
  options.json = options.json || given.Has("--json");
  options.no_color = options.no_color || given.Has("--no-color");
  if (const auto wrong = WrongAddress(options.manager); !wrong.empty())
    return UsageError(Cat("TROUPE_MANAGER: ", wrong));
  return options;
}

void FillVerb(const CLI::App& app, Command& command) {
  const CLI::App* first = Chosen(app);
  const CLI::App* leaf = Chosen(*first);
  const std::string group = leaf == nullptr ? "" : first->get_name();
  const CLI::App& last = leaf == nullptr ? *first : *leaf;
  const auto verb = std::find_if(Verbs().begin(), Verbs().end(), [&](const Verb& one) {
    return one.group == group && one.name == last.get_name();
  });
  command.shell = verb == Verbs().end();
  if (command.shell) return;
  command.verb = &*verb;
  command.arguments = Collect(last, verb->arguments);
}

std::string JsonError(const absl::Status& status) {
  return Cat("{\"code\": ", static_cast<int>(status.code()), ", \"status\": \"",
             absl::StatusCodeToString(status.code()),
             "\", \"message\": ", JsonString(FromAbsl(status.message())), "}\n");
}

// Another program would take the shell's place, and not come back.
absl::Status OfCompanion(std::vector<std::string> words) {
  if (!words.empty() && words[0] == "help") {
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  if (!IsForCompanion(words)) return absl::OkStatus();
  return UsageError(Cat("run it outside of the shell: troupe ", Printable(absl::StrJoin(words, " "))));
}

}  // namespace

const std::vector<Argument>& GlobalArguments() {
  static const std::vector<Argument> kArguments = {
      {.name = "--manager", .help = "HOST:PORT of the cluster manager (env TROUPE_MANAGER; 127.0.0.1:7400)"},
      {.name = "--tls-dir", .help = "folder of your certificate (env TROUPE_TLS_DIR), for other machines"},
      {.name = "--insecure-network",
       .kind = Kind::kFlag,
       .help = "ask another machine without a certificate"},
      {.name = "--json", .kind = Kind::kFlag, .help = "print the cluster's reply as JSON"},
      {.name = "--timeout", .kind = Kind::kDuration, .help = "the longest wait for an answer, like 5s"},
      {.name = "--no-color", .kind = Kind::kFlag, .help = "no colours (also env NO_COLOR)"},
  };
  return kArguments;
}

std::string RootHelp() {
  std::string out =
      "troupe: command line and shell of a cluster\n\nusage: troupe [OPTIONS] COMMAND ...\n\nCommands:\n";
  for (const auto& verb : Verbs()) {
    std::string usage = verb.words();
    for (const auto& argument : verb.arguments) {
      if (argument.positional())
        Append(&usage, argument.required ? " " : " [", argument.name, argument.required ? "" : "]");
    }
    absl::StrAppendFormat(&out, "  %-32s %s\n", usage, verb.summary);
  }
  for (const auto& verb : CompanionVerbs())
    absl::StrAppendFormat(&out, "  %-32s %s\n", verb.words, verb.summary);
  absl::StrAppendFormat(&out, "  %-32s %s\n", "shell", "An interactive shell; or commands from a pipe");
  absl::StrAppendFormat(&out, "  %-32s %s\n\nOptions of every command:\n", "help [COMMAND]",
                        "What a command takes");
  for (const auto& argument : GlobalArguments()) {
    const auto name = Cat(argument.name, argument.kind == Kind::kFlag       ? ""
                                         : argument.kind == Kind::kDuration ? " TIME"
                                                                            : " TEXT");
    absl::StrAppendFormat(&out, "  %-32s %s\n", name, argument.help);
  }
  absl::StrAppendFormat(&out, "  %-32s %s\n\n", "--version", "the version of this program");
  return Cat(out, kExitCodeHelp, "\n'troupe COMMAND --help' says more.\n");
}

absl::StatusOr<Command> ParseCommand(std::vector<std::string> words, const GlobalOptions& defaults) {
  for (const auto& word : words)
    if (MakeUtf8(word) != word)
      return UsageError(Cat("'", Printable(MakeUtf8(word)), "' is not valid UTF-8 text"));
  Command command;
  command.options = defaults;
  if (!words.empty() && words[0] == "help") {
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  words = WithUsualVerb(std::move(words));
  const auto app = MakeParser();
  try {
    app->parse(std::vector<std::string>(words.rbegin(), words.rend()));
    TROUPE_ASSIGN_OR_RETURN(command.options, Globals(*app, defaults));
    FillVerb(*app, command);
  } catch (const CLI::CallForHelp&) {
    const auto asked = WithoutOptions(words);
    // A group's name alone is not a command, but shows the group's help.
    if (asked.size() > 1 || (!asked.empty() && GroupSummary(asked[0]).empty()))
      TROUPE_RETURN_IF_ERROR(CheckWords(asked));
    command.text = Chosen(*app) == nullptr ? RootHelp() : app->help();
  } catch (const CLI::CallForVersion& version) {
    command.text = Cat(version.what(), "\n");
  } catch (const CLI::ParseError& error) {
    return Explain(*app, error, words);
  }
  return command;
}

void PrintError(Console& console, const std::vector<std::string>& words, const absl::Status& status) {
  // The terminal has echoed ^C where the line is to begin.
  if (ExitCodeOf(status) == ExitCode::kInterrupted && console.in_is_terminal()) console.err() << '\n';
  const auto asked = Shorten(Printable(absl::StrJoin(words, " ")), kMostEchoed);
  console.err() << "troupe: " << asked << (asked.empty() ? "" : ": ")
                << PrintableLines(FromAbsl(status.message())) << std::endl;
}

ExitCode RunParsed(Session& session, const Command& command, const std::vector<std::string>& words) {
  if (command.verb == nullptr) {
    session.out() << command.text << std::flush;
    return ExitCode::kOk;
  }
  session.Configure(command.options);
  const auto status = command.verb->run(session, command.arguments);
  session.out() << std::flush;
  if (status.ok()) return ExitCode::kOk;
  if (session.json()) session.out() << JsonError(status) << std::flush;
  PrintError(session.console(), words, status);
  return ExitCodeOf(status);
}

ExitCode RunCommand(Session& session, const std::vector<std::string>& words, const GlobalOptions& defaults) {
  if (const auto companion = OfCompanion(words); !companion.ok()) {
    PrintError(session.console(), words, companion);
    return ExitCode::kUsage;
  }
  const auto command = ParseCommand(words, defaults);
  if (!command.ok()) {
    PrintError(session.console(), words, command.status());
    return ExitCodeOf(command.status());
  }
  if (command->shell) {
    PrintError(session.console(), words, UsageError("this is a shell already"));
    return ExitCode::kUsage;
  }
  return RunParsed(session, *command, words);
}

}  // namespace troupe::shell
