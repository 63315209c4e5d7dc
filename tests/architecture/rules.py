#!/usr/bin/env python3
"""The house rules of docs/architecture.md, checked over the source tree.

usage: rules.py ROOT          prints every violation as file:line: rule; exit 1 when there is one
       rules.py --self-test   plants one violation of each rule and checks that it is found
"""
import pathlib
import re
import sys
import tempfile

# A room and the rooms whose headers it may include (itself is always allowed).
BELOW = {
    "base": set(),
    "proto": {"base"},
    "security": {"proto", "base"},
    "transport": {"security", "proto", "base"},
    "storage": {"transport", "proto", "base"},
    "gpu": {"transport", "proto", "base"},
    "scheduling": {"base"},
    "node": {"cluster", "scheduling", "proto", "base"},
    "cluster": {"scheduling", "proto", "base"},
    "gateway": {"security", "proto", "base"},
    "actors": {"security", "gateway", "cluster", "node", "scheduling", "gpu", "storage", "transport", "proto", "base"},
    "shell": {"security", "proto", "base"},  # and the one header of the admin client, below
    "sim": {"actors", "security", "gateway", "cluster", "node", "scheduling", "gpu", "storage", "transport", "proto",
            "base"},
}
SHELL_DOOR = re.compile(r"actors/admin_client\.hpp")
SOURCE = {".hpp", ".cpp", ".h", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
CUDA_HEADER = re.compile(r"^(cuda|cudnn|cublas|nccl|nvml|nvtx|cuda_runtime)[A-Za-z0-9_]*(\.h|\.hpp|/)")
# What a deciding room must not touch.
IMPURE = re.compile(
    r"(steady|system|high_resolution)_clock\s*::\s*now|std::this_thread|std::random_device|\bstd::j?thread\b|"
    r"\bstd::(mutex|async|condition_variable)\b|\b(fopen|getenv|gettimeofday|clock_gettime|sleep_for|rand)\s*\(|\btime\s*\(\s*(NULL|nullptr|0)\s*\)"
)
IMPURE_HEADERS = {"thread", "mutex", "condition_variable", "fstream", "filesystem", "future", "iostream", "ctime",
                  "unistd.h", "sys/socket.h", "pthread.h"}
DECIDING = {"cluster", "node", "scheduling", "base"}
LINE_COMMENT = re.compile(r"//.*$")
MOST_LINES = 400  # of one source
# In these folders, words joined by dashes between quotes are kinds of events, all of which this header lists.
TELLERS = ("cluster/admin/", "cluster/copies/", "cluster/members/", "cluster/ownership/", "cluster/records/", "cluster/profiling/", "cluster/runs/", "cluster/usage/",
           "node/models/", "node/requests/", "node/runtimes/", "node/state/", "node/usage/")
TELLING_FILES = ("node/event_journal.cpp", "node/scheduling/dispatches.cpp")
EVENT_KINDS = "proto/event_kinds.hpp"
DASHED = re.compile(r'"([a-z]+(?:-[a-z]+)+)"')
# Made of a state, or named once for all (cluster::kSwapEvent).
MADE_KINDS = re.compile(r"(member|worker)-(alive|suspect|dead|draining|left|ready|down|unfit)$")
# The page that explains each kind, one in a row.
EVENT_PAGE = "docs/events.md"
LISTED_KIND = re.compile(r'"([a-z-]+)",')
EVENT_ROW = re.compile(r"^\| `([a-z-]+)` \|", re.MULTILINE)


def check_line(room, path, line, found):
    include = INCLUDE.match(line)
    if include:
        header = include.group(2)
        if header.startswith("caf/") and room not in ("actors", "sim"):
            found("CAF is included only under actors/ and sim/")
        if CUDA_HEADER.match(header) and not path.startswith("gpu/cuda/"):
            found("CUDA headers only under gpu/cuda")
        if room in DECIDING and header in IMPURE_HEADERS:
            found(f"{room}/ decides and does nothing else: <{header}>")
        target = header.split("/")[0]
        if include.group(1) == '"' and target in BELOW and target != room and target not in BELOW[room]:
            if not (room == "shell" and SHELL_DOOR.match(header)):
                found(f"an arrow that goes up or round: {room}/ includes {header}")
    elif room in DECIDING and IMPURE.search(LINE_COMMENT.sub("", line)):
        found(f"{room}/ decides and does nothing else (clock, thread, I/O or unseeded randomness)")
    if room == "actors" and path == "actors/admin_client.hpp" and include and include.group(2).startswith("caf/"):
        found("the admin client's header shows no CAF")


def sources(root, folder):
    return [file for file in sorted((root / folder).rglob("*")) if file.suffix in SOURCE]


def event_violations(root):
    header = root / EVENT_KINDS
    listed = set(DASHED.findall(header.read_text())) if header.is_file() else set()
    used = set()
    telling = [file for folder in TELLERS for file in sources(root, folder)]
    telling += [root / path for path in TELLING_FILES if (root / path).is_file()]
    for file in telling:
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
            for kind in DASHED.findall(line):
                used.add(kind)
                if kind not in listed:
                    yield f"{file.relative_to(root).as_posix()}:{number}: {EVENT_KINDS} does not list the event's kind '{kind}'"
    for kind in sorted(listed - used):
        if not MADE_KINDS.match(kind):
            yield f"{EVENT_KINDS}: no file writes events of kind '{kind}'"
    page = root / EVENT_PAGE
    kinds = set(LISTED_KIND.findall(header.read_text())) if header.is_file() else set()
    rows = EVENT_ROW.findall(page.read_text()) if page.is_file() else sorted(kinds)
    for kind in sorted(set(rows) | kinds):
        if kind not in kinds:
            yield f"{EVENT_PAGE}: explains the kind '{kind}', which {EVENT_KINDS} does not list"
        elif rows.count(kind) != 1:
            yield f"{EVENT_PAGE}: has {rows.count(kind)} rows for the kind '{kind}', and each kind has one"


# A class owns one concept, in every room; so does a struct that has as many functions as a class.
LEAST_METHODS = 5  # of a struct that is measured as a class
# Those that may have more fields, and why: each field is a thing of its own, and the class decides nothing. One that has
# no more fields than others is to be taken off.
COMPOSITIONS = {
    "node/parts.hpp: Parts": "the parts of a node, and in which order they hear of an event",
    "actors/daemon/common.hpp: Common": "what the roles of a daemon share, made in this order and ended in reverse",
    "actors/daemon/gateway_role.cpp: GatewayRole": "the actors and servers of a gateway, made in this order and ended in reverse",
    "actors/daemon/node_role.cpp: NodeRole": "the actors of a node and what they share, made in this order and ended in reverse",
    "actors/seams/fake_worker_link.hpp: FakeWorkerControl": "what a test sees of a fake worker and can make it do",
}
MOST_SOURCES, MOST_METHODS, MOST_FIELDS, MOST_PARAMETERS = 2, 40, 12, 6
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')
CLASS = re.compile(r"(?<!enum )\b(class|struct)\s+(\w+)(?:\s+final)?(?:\s*:[^;{()]*)?\s*\{")
INITIALISED = re.compile(r"\b\w+_\s*(?:=.*|\{.*\})?$", re.S)  # a field, up to the brace of its value
NOT_COUNTED = re.compile(r"(using|typedef|friend|enum|struct|class|static_assert)\b")
DEFINITION = re.compile(r"^(?=\S)[\w:&*<>, \[\]]*\b(\w+)::~?\w+\(", re.M)  # at a line's begin: inside a body it is a call


def close_of(text, at, opening="{", closing="}"):
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] == opening) - (text[i] == closing)
        if depth == 0:
            return i
    return len(text)


def statements(body):
    """What a class declares, without the bodies of functions and nested types."""
    out, begin, i = [], 0, 0
    while i < len(body):
        if body[i] == "{":
            end = close_of(body, i)
            head = body[begin:i]
            # A field's initialiser belongs to it; a body ends its function or type.
            if INITIALISED.search(head.strip()) and "(" not in head.split("_")[-1]:
                i = end + 1
                continue
            out.append(head)
            i = begin = end + 1
        elif body[i] == "(":
            i = close_of(body, i, "(", ")") + 1
        elif body[i] == ";":
            out.append(body[begin:i])
            i = begin = i + 1
        else:
            i += 1
    labels = re.compile(r"^\s*(?:(?:public|private|protected)\s*:\s*)+")
    return [statement for statement in (labels.sub("", one).strip() for one in out) if statement]


def parameters(text):
    inside = text[text.index("(") + 1 : close_of(text, text.index("("), "(", ")")]
    depth, count = 0, 1 if inside.strip() else 0
    for char in inside:
        depth += (char in "<({[") - (char in ">)}]")
        count += char == "," and depth == 0
    return count


def outside(text, opening, closing):
    """The text without what stands between such characters."""
    out, depth = [], 0
    for i, char in enumerate(text):
        depth += char in opening
        if depth == 0:
            out.append(char)
        depth -= char in closing and depth > 0 and text[i - 1 : i + 1] != "->"
    return "".join(out)


POINTER = re.compile(r"\(\*\s*\w+\)\s*\(")  # to a function


def is_method(statement):
    if "operator" in statement:
        return True
    head = outside(re.sub(r"\balignas\([^)]*\)", "", statement), "<", ">").split("=")[0]
    return "(" in head and not POINTER.search(head)


def measure(text):
    """Every class in a source, and every struct that is like one: its kind and name, and how many methods, fields and
    parameters of a constructor it has."""
    text = STRING.sub('""', COMMENT.sub("", text))
    for found in CLASS.finditer(text):
        kind, name = found.groups()
        body = text[found.end() : close_of(text, found.end() - 1)]
        methods = fields = most = 0
        after_method = False
        for statement in statements(body):
            statement = re.sub(r"^template\s*<[^{;]*?>\s*", "", statement)
            if NOT_COUNTED.match(statement) or "= delete" in statement:
                continue
            if statement.startswith(","):  # the next member that a constructor initialises, or the next field of a line
                fields += not after_method
                continue
            after_method = is_method(statement)
            if after_method:
                methods += 1
                if re.match(r"(explicit\s+)?" + name + r"\s*\(", statement):
                    most = max(most, parameters(statement))
            elif not statement.startswith("static"):
                fields += 1 + outside(statement, "<({[", ">)}]").count(",")
        if kind == "class" or methods >= LEAST_METHODS:
            yield kind, name, methods, fields, most


def class_violations(root):
    composed = set()
    for room in BELOW:
        seen = set()
        defined = {}
        for file in sources(root, room):
            text = file.read_text(errors="replace")
            path = file.relative_to(root).as_posix()
            for name in set(DEFINITION.findall(STRING.sub('""', COMMENT.sub("", text)))):
                if file.suffix == ".cpp":
                    defined.setdefault(name, []).append(path)
            for kind, name, methods, fields, most in measure(text):
                wrong = []
                if methods > MOST_METHODS:
                    wrong.append(f"has {methods} methods, and a {kind} has {MOST_METHODS} at most")
                if f"{path}: {name}" in COMPOSITIONS:
                    composed.add(f"{path}: {name}")
                    if fields <= MOST_FIELDS:
                        wrong.append("has few fields: take it off COMPOSITIONS")
                elif fields > MOST_FIELDS:
                    wrong.append(f"has {fields} fields, and a {kind} with functions has {MOST_FIELDS} at most")
                if most > MOST_PARAMETERS:
                    wrong.append(f"has a constructor of {most} parameters; {MOST_PARAMETERS} at most, or a struct of options")
                seen.add(name)
                yield from (f"{path}: {kind} {name} {what}: which two concepts does it own?" for what in wrong)
        for name, files in defined.items():
            if name in seen and len(files) > MOST_SOURCES:
                yield f"{files[0]}: class {name} is spread over {len(files)} sources, and {MOST_SOURCES} are allowed: {', '.join(files)}"
    for one in sorted(COMPOSITIONS.keys() - composed):
        if (root / one.split(":")[0]).is_file():
            yield f"tests/architecture/rules.py: '{one}' is no such struct: take it off COMPOSITIONS"


# An option that takes one of a few names sets an enum, whose table of names (base/enum_names.hpp) stands beside it. A text
# or a truth value would be read again, and could be written wrong, wherever it is used.
TEXT_FOR_ENUM = [
    (re.compile(r"\bChoice<\s*bool\s*>"), "a choice by name sets an enum, not a bool"),
    (re.compile(r"\b(?:OneOf|IsMember)\([^;)]*\"(?:on|off)\""), "a choice by name sets an enum, not a text"),
    (re.compile(r"(?<![<>])[!=]?=\s*\"on\"|[!=]=\s*\"off\"|\"(?:on|off)\"\s*[!=]="), "'on' and 'off' are names of an enum's values"),
]


def option_violations(root):
    for room in [*BELOW, "bench"]:
        for file in sources(root, room):
            text = COMMENT.sub(lambda comment: "\n" * comment.group().count("\n"), file.read_text(errors="replace"))
            for pattern, rule in TEXT_FOR_ENUM:
                for found in pattern.finditer(text):
                    number = text.count("\n", 0, found.start()) + 1
                    yield f"{file.relative_to(root).as_posix()}:{number}: {rule} (base/enum_names.hpp)"


# The folders of a room include each other in one direction only; what lies in the room itself is a folder, too. These are
# the circles that are still there: a folder that has left its circle is to be taken off.
CIRCLES = {
    "cluster": {".", "admin", "copies", "members", "ownership", "profiling", "records", "requests", "runs", "usage"},  # as in node/, by parts.hpp
    "node": {".", "models", "profiling", "requests", "runtimes", "scheduling", "state", "tensors", "usage"},  # parts.hpp names every part to every part
}


def folder_of(path):
    """`sim/chaos/x.hpp` lies in `chaos`, `sim/world.hpp` in `.`."""
    parts = path.split("/")
    return parts[1] if len(parts) > 2 else "."


def includes_between_folders(root, room):
    """Of each folder of a room the folders that it includes, each with the line that does."""
    arrows = {}
    for file in sources(root, room):
        path = file.relative_to(root).as_posix()
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
            include = INCLUDE.match(line)
            if include and include.group(1) == '"' and include.group(2).startswith(room + "/"):
                begin, end = folder_of(path), folder_of(include.group(2))
                if begin != end:
                    arrows.setdefault(begin, {}).setdefault(end, f"{path}:{number}")
    return arrows


def reached(arrows, begin):
    seen, left = set(), [begin]
    while left:
        for end in arrows.get(left.pop(), {}):
            if end not in seen:
                seen.add(end)
                left.append(end)
    return seen


def circle_violations(root):
    for room in BELOW:
        arrows = includes_between_folders(root, room)
        known = CIRCLES.get(room, set())
        after = {folder: reached(arrows, folder) for folder in arrows}
        for begin in sorted(arrows):
            for end, where in sorted(arrows[begin].items()):
                if begin in after.get(end, ()) and not {begin, end} <= known:
                    yield f"{where}: {room}/{begin} includes {room}/{end}, which leads back to it: move what both need, or the arrow"
        for folder in sorted(known):
            if folder in arrows and folder not in after[folder]:
                yield f"tests/architecture/rules.py: {room}/{folder} is in no circle: take it off CIRCLES"


def violations(root):
    out = [*event_violations(root), *class_violations(root), *option_violations(root), *circle_violations(root)]
    for room in BELOW:
        for file in sorted((root / room).rglob("*")):
            if file.suffix not in SOURCE:
                continue
            path = file.relative_to(root).as_posix()
            lines = file.read_text(errors="replace").splitlines()
            if len(lines) > MOST_LINES:
                out.append(f"{path}:{MOST_LINES + 1}: a source has {MOST_LINES} lines at most: which two purposes has this one?")
            for number, line in enumerate(lines, 1):
                check_line(room, path, line, lambda rule, n=number: out.append(f"{path}:{n}: {rule}"))
    for room in BELOW:
        if (root / room).is_dir() and any((root / room).rglob("*.?pp")) and not (root / room / "README.md").is_file():
            out.append(f"{room}/: has no README.md")
    return out


def many(count, line):
    return "".join("  " + line.replace("#", str(i)) + "\n" for i in range(count))


PLANTED = {
    "cluster/a.cpp": ["#include <caf/all.hpp>", "auto t = std::chrono::steady_clock::now();", "#include <thread>",
                      '#include "node/b.hpp"'],
    "gpu/device/x.cpp": ["#include <cuda_runtime.h>", '#include "storage/y.hpp"', '#include "actors/z.hpp"'],
    "security/s.cpp": ['#include "gateway/route.hpp"'],
    "base/r.cpp": ["std::random_device seed;", '#include "proto/x.pb.h"'],
    "shell/s.cpp": ['#include "actors/interfaces/router.hpp"'],
    "actors/admin_client.hpp": ["#include <caf/actor.hpp>"],
    "sim/long.cpp": ["\n" * MOST_LINES],
    "cluster/runs/events.cpp": ['Note("nobody-knows", text);'],
    "node/state/events.cpp": ['Note("nobody-knows", text);'],
    "node/large.hpp": ["class Large {\n" + "".join(f"  void Do{i}(int a, int b) const;\n" for i in range(MOST_METHODS + 1)) + "};",
                       "class Large {\n  void Do();\n" + "".join(f"  std::function<void(int)> field{i}_{{1}};\n" for i in range(MOST_FIELDS + 1)) + "};",
                       "class Large {\n  explicit Large(A a, B<C, D> b, E c, F d, G e, H f, I g);\n};",
                       "class Large {\n  void Do();\n" + many(MOST_FIELDS + 1, "std::shared_ptr<A> field#_ = std::make_shared<A>(1);") + "};",
                       "class Large {\n  void Do();\n  int a_ = 0" + many(MOST_FIELDS, ", field#_{}") + ";\n};",
                       "struct Large {\n" + many(MOST_METHODS + 1, "[[nodiscard]] int Get#() const { return 1; }") + "};",
                       "struct Large {\n  Large(A a) : field0(*a) {}\n  bool operator==(const Large& other) const;\n" +
                       many(LEAST_METHODS - 2, "void Do#();") + many(MOST_FIELDS - 1, "std::function<void(int)> field#;") + "  int a = 0, b = 0;\n};"],
    "node/parts.hpp": ["struct Parts {\n" + many(LEAST_METHODS, "void Hear(const Event#& event);") + "  A field0{*this};\n};", "struct Other {};"],
    "actors/option.cpp": ['Choice<bool>({&C::functions, &F::dry_run}, {{"off", false}, {"on", true}})', 'OneOf({&C::worker, &W::graphs}, {"on", "off"})',
                          'app.add_option("--graphs", graphs)->check(CLI::IsMember({"on", "off"}));', 'options.graphs = flags.graphs == "on";',
                          'if ("off" != flags.graphs) Record();', 'std::string graphs = "on";'],
    "bench/option.cpp": ['command.graphs = "on";', 'if (name != "off") Record();'],
    "gateway/large.hpp": ["class Large {\n  void Do();\n" + "".join(f"  int field{i}_ = 0;\n" for i in range(MOST_FIELDS + 1)) + "};"],
    "actors/large.cpp": ["class Large {\n public:\n" + "".join(f"  void Do{i}() {{}}\n" for i in range(MOST_METHODS + 1)) + "};"],
    "sim/spread.hpp": ["class Spread {\n  void A();\n};\n//SPREAD"],
    "sim/chaos/a.hpp": ['#include "sim/world/b.hpp"  //CIRCLE', '#include "sim/b.hpp"  //CIRCLE'],
    "node/spread.hpp": ["class Spread {\n  void A();\n};\n//SPREAD", "struct Spread {\n  void A();\n" + many(LEAST_METHODS, "void Do#();") + "};\n//SPREAD"],
    EVENT_KINDS: ['    "nobody-writes",', '    "swap",  //PAGE'],
    EVENT_PAGE: ["| `nobody-writes` | never | - |"],
}
ALLOWED = {
    "actors/ok.cpp": ["#include <caf/all.hpp>", '#include "node/b.hpp"'],
    "gpu/cuda/ok.cpp": ["#include <cuda.h>"],
    "shell/ok.cpp": ['#include "actors/admin_client.hpp"'],
    "sim/full.cpp": ["\n" * (MOST_LINES - 1)],
    "cluster/runs/events.cpp": ['Tell("manager", cluster::kSwapEvent, "a-b c-d");'],
    EVENT_KINDS: ['    "swap", "worker-ready", "member-dead",'],
    "gpu/calls.cpp": ["class Spread {\n  void A();\n};\nvoid F() {\n  Spread::A();\n}\n//CALLED"],
    "node/large.hpp": ["class Large {\n public:\n  explicit Large(A a, B<C, D> b, E c, F d, G e, H f) : a_(a) {}\n" +
                       "".join(f"  void Do{i}() {{ int x = f(1); }}\n" for i in range(MOST_METHODS - 1)) +
                       " private:\n  struct Inner {\n    void A();\n    void B();\n  };\n" +
                       "".join(f"  std::map<int, int> field{i}_{{}};\n" for i in range(MOST_FIELDS)) + "};",
                       "struct Plain {\n  Plain(A a) : field0(*a) {}\n" + many(LEAST_METHODS - 2, "void Do#();") + many(MOST_FIELDS * 2, "int field# = 0;") + "};",
                       "struct Full {\n  Full(A a) : field0{a}, field1{a} {}\n" + many(LEAST_METHODS, "void Do#(int a = 1, int b = 2) const;") +
                       "  void (*go)(int, int) = nullptr;\n  alignas(64) std::map<int, F(int, int)> table{};\n  static constexpr int kMost = 1, kLeast = 0;\n" +
                       many(MOST_FIELDS - 2, "std::vector<int> field# = Make(1, 2);") + "};"],
    "node/parts.hpp": ["struct Parts {\n" + many(LEAST_METHODS, "void Hear(const Event#& event);") + many(MOST_FIELDS + 1, "A field#{*this};") + "};"],
    "actors/option.cpp": ["Choice({&C::worker, &W::repeated}, gpu::kRepeatedLaunches)", '{{{"on", Repeated::kReplayed}, {"off", Repeated::kStepByStep}}};',
                          'std::string batching = "off";', '// Not flags.graphs == "on".', '"on: they get no part of a GPU; off", false,', "OneOf(shape.NodeNames(), random)"],
    "sim/chaos/a.hpp": ['#include "sim/world/b.hpp"', '#include "sim/b.hpp"', '#include "sim/chaos/b.hpp"  //CIRCLE'],
    "node/ok.cpp": ["// std::this_thread is not for this room", '#include "base/units.hpp"'],
}


def self_test():
    for lines, expected in ((PLANTED, True), (ALLOWED, False)):
        for path, content in lines.items():
            for line in content:
                with tempfile.TemporaryDirectory() as folder:
                    root = pathlib.Path(folder)
                    file = root / path
                    file.parent.mkdir(parents=True)
                    file.write_text(line + "\n")
                    (root / path.split("/")[0] / "README.md").write_text("A room.\n")
                    if line.endswith("//SPREAD"):
                        for part in "abc":
                            (file.parent / f"{part}.cpp").write_text(f"void Spread::{part.upper()}() {{}}\n")
                    if line.endswith("//CALLED"):  # which is no definition
                        for part in "abc":
                            (file.parent / f"{part}.cpp").write_text("void F() {\n  return Spread::A();\n}\n")
                    if line.endswith("//PAGE"):
                        (root / EVENT_PAGE).parent.mkdir()
                        (root / EVENT_PAGE).write_text("# Events\n")
                    if line.endswith("//CIRCLE"):
                        other = root / INCLUDE.match(line).group(2)
                        other.parent.mkdir(parents=True, exist_ok=True)
                        other.write_text(f'#include "{path}"\n')
                    if bool(violations(root)) != expected:
                        print(f"self-test: {path}: '{line}' should {'be' if expected else 'not be'} a violation")
                        return 1
    print("self-test: every planted violation was found, nothing allowed was refused")
    return 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    found = violations(pathlib.Path(sys.argv[1]))
    print("\n".join(found) if found else "the house rules hold")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
