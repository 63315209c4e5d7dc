// The main of each fuzz target. It is libFuzzer's, but for the first word `changed`: then it asks the target with
// every input of the folders, and with inputs that it changes at random, the same ones for the same seed. It looks for nothing
// that is new, as libFuzzer does, and so asks many more of them each second.
//   NAME [-OPTION=VALUE ...] FOLDER|FILE ...
//   NAME changed [--inputs 20000] [--seed 1] [--longest 4096] [--only N] [--write FILE] FOLDER ...
// When a changed input ends the program, its last line says how to make that input again.
#include <sanitizer/common_interface_defs.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.hpp"
#include "google/protobuf/stubs/logging.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerRunDriver(int* argc, char*** argv,
                                   int (*ask)(const std::uint8_t* data, std::size_t size));

namespace {

using Input = std::vector<std::uint8_t>;

struct Options {
  std::uint64_t inputs = 20'000;
  std::uint64_t seed = 1;
  std::size_t longest = 4096;
  std::uint64_t only = 0;  // 0: all
  std::string file;        // where the only input is written instead of being asked with
  std::vector<std::string> folders;
};

char last_words[256] = "";

void SayLastWords() {
  [[maybe_unused]] const auto written = write(STDERR_FILENO, last_words, std::strlen(last_words));
}
void Died(int signal) {
  SayLastWords();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// All inputs of the folders in the order of their names, cut to the longest length.
std::vector<Input> Read(const Options& options) {
  std::vector<std::filesystem::path> paths;
  for (const std::string& folder : options.folders)
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.is_regular_file()) paths.push_back(entry.path());
  std::ranges::sort(paths);
  std::vector<Input> inputs;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    if (inputs.back().size() > options.longest) inputs.back().resize(options.longest);
  }
  return inputs;
}

// Numbers at which lengths and offsets go wrong, little-endian.
std::uint64_t AwkwardNumber(troupe::Random& random) {
  const std::uint64_t power = std::uint64_t{1} << random.Below(64);
  return power - random.Below(3) + 1;
}

void ChangeOnce(const std::vector<Input>& all, troupe::Random& random, Input& input) {
  const std::size_t at = random.Below(input.size() + 1);
  const std::size_t left = input.size() - at;
  const auto place = input.begin() + static_cast<std::ptrdiff_t>(at);
  switch (random.Below(7)) {
    case 0:  // one bit
      if (left > 0) *place ^= static_cast<std::uint8_t>(1U << random.Below(8));
      return;
    case 1:  // one byte
      if (left > 0) *place = static_cast<std::uint8_t>(random.Below(256));
      return;
    case 2:  // a part goes
      input.erase(place, place + static_cast<std::ptrdiff_t>(random.Below(left + 1)));
      return;
    case 3: {  // a part stands twice
      const Input part(place,
                       place + static_cast<std::ptrdiff_t>(std::min<std::size_t>(left, random.Below(64))));
      input.insert(place, part.begin(), part.end());
      return;
    }
    case 4: {  // a number
      const std::uint64_t number = AwkwardNumber(random);
      const std::size_t width = std::min<std::size_t>(left, std::size_t{1} << random.Below(4));
      if (width > 0) std::memcpy(&*place, &number, width);
      return;
    }
    case 5: {  // a part of another input
      const Input& other = all[random.Below(all.size())];
      const std::size_t begin = random.Below(other.size() + 1);
      const std::size_t length = random.Below(std::min<std::size_t>(other.size() - begin, 256) + 1);
      const auto from = other.begin() + static_cast<std::ptrdiff_t>(begin);
      input.insert(place, from, from + static_cast<std::ptrdiff_t>(length));
      return;
    }
    default:  // the rest of another input
      const Input& other = all[random.Below(all.size())];
      input.resize(at);
      if (at < other.size())
        input.insert(input.end(), other.begin() + static_cast<std::ptrdiff_t>(at), other.end());
  }
}

// Depends on its number and the seed alone, so that it can be made again without those before it.
Input Changed(const Options& options, const std::vector<Input>& all, std::uint64_t number) {
  troupe::Random random(options.seed * 1'000'003 + number);
  Input input = all[random.Below(all.size())];
  for (std::uint64_t changes = 1 + random.Below(6); changes > 0; --changes) ChangeOnce(all, random, input);
  if (input.size() > options.longest) input.resize(options.longest);
  return input;
}

void Ask(const Input& input) {
  // A copy of its own size, so that the sanitizer sees a read beyond its end.
  const Input exact(input.begin(), input.end());
  static_cast<void>(LLVMFuzzerTestOneInput(exact.data(), exact.size()));
}

int Run(const Options& options) {
  std::vector<Input> all = Read(options);
  if (all.empty()) all.emplace_back();
  if (options.only > 0) {
    const Input input = Changed(options, all, options.only);
    if (options.file.empty()) return Ask(input), 0;
    std::ofstream(options.file, std::ios::binary)
        .write(reinterpret_cast<const char*>(input.data()), static_cast<std::streamsize>(input.size()));
    return 0;
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::snprintf(last_words, sizeof(last_words), "the input that ended it: kept input %zu, by name\n",
                  i + 1);
    Ask(all[i]);
  }
  for (std::uint64_t number = 1; number <= options.inputs; ++number) {
    std::snprintf(last_words, sizeof(last_words),
                  "the input that ended it: --seed %llu --only %llu (and --write FILE keeps it)\n",
                  static_cast<unsigned long long>(options.seed), static_cast<unsigned long long>(number));
    Ask(Changed(options, all, number));
  }
  std::printf("%zu kept inputs, %llu changed ones\n", all.size(),
              static_cast<unsigned long long>(options.inputs));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  google::protobuf::SetLogHandler(nullptr);  // a line for each text that is not UTF-8
  if (argc < 2 || std::string_view(argv[1]) != "changed")
    return LLVMFuzzerRunDriver(&argc, &argv, LLVMFuzzerTestOneInput);
  --argc, ++argv;
  Options options;
  CLI::App app("Asks a fuzz target with kept inputs, and with inputs that are changed at random.");
  app.add_option("--inputs", options.inputs, "changed inputs");
  app.add_option("--seed", options.seed, "of the changes");
  app.add_option("--longest", options.longest, "bytes of an input, at most");
  app.add_option("--only", options.only, "one changed input, by its number");
  app.add_option("--write", options.file, "writes that input to a file, and asks nothing with it");
  app.add_option("folders", options.folders, "of kept inputs")->required();
  CLI11_PARSE(app, argc, argv);
  std::signal(SIGABRT, Died);
  __sanitizer_set_death_callback(SayLastWords);
  return Run(options);
}
