#include "shell/simulator.hpp"

#include <unistd.h>

#include <filesystem>

namespace troupe::shell {

bool IsForSimulator(const std::vector<std::string>& words) {
  return !words.empty() && (words[0] == "simulate" || words[0] == "experiment");
}

ExitCode BecomeSimulator(Console& console, const std::vector<std::string>& words) {
  std::error_code error;
  const auto here = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const auto program = (here / "troupe-sim").string();
  std::vector<std::string> own = words;
  std::vector<char*> arguments = {const_cast<char*>(program.c_str())};
  for (auto& word : own) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv(program.c_str(), arguments.data());
  console.err() << "troupe: " << words[0] << ": " << program
                << " cannot be started; it is installed beside troupe\n";
  return ExitCode::kUsage;
}

const std::vector<SimulatorVerb>& SimulatorVerbs() {
  static const std::vector<SimulatorVerb> kVerbs = {
      {"simulate", "A workload on a simulated cluster, under virtual time"},
      {"experiment NAME", "A paper's experiment in the simulator; `experiment list` names them"}};
  return kVerbs;
}

}  // namespace troupe::shell
