#!/usr/bin/env python3
"""Every file that a comment or a page names exists, sources say what they mean in the field's words, and commit
subjects have at most 72 characters.

usage: names.py ROOT             prints every violation as file:line: rule; exit 1 when there is one
       names.py --subjects       reads commit subjects from standard input, one a line
       names.py --self-test      plants violations and checks that each is found
"""
import pathlib
import re
import sys
import tempfile

ROOMS = ("actors base bench cluster cmake deploy docs examples gateway gpu node proto scheduling security shell sim storage "
         "tests transport").split()
SUFFIXES = "hpp|cpp|cu|cuh|py|sh|md|proto"
COMMENT = {".hpp": "//", ".cpp": "//", ".cu": "//", ".cuh": "//", ".proto": "//", ".py": "#", ".sh": "#", ".cmake": "#",
           "CMakeLists.txt": "#", "Makefile": "#"}
# A name with a suffix of ours, with or without folders before it. Parts in capitals or braces stand for any name.
FILE = re.compile(rf"(?<![\w/.{{}}<>*-])(?:\.\./)*((?:[\w.-]+/)*[a-z_][\w-]*\.(?:{SUFFIXES}))(?![\w*/-]|\.\w)")
# `room/name` in a page: a file, a folder, or how the names of several files begin.
PLACE = re.compile(rf"`((?:{'|'.join(ROOMS)})/[\w/-]+)`")
# Words that make a riddle of a comment or an error, and what to write instead (docs/architecture.md, Words).
RIDDLES = {
    r"whoever|nobody|somebody": "name the thing: the worker, the request, a runtime without a key",
    r"is no valid": "write 'is not a valid'",
    r"desks?": "write handler, or the noun of what it keeps",
    r"loans?|lenders?|borrow(?:er|ers|s|ed)?": "write peer copy, source, destination, pin",
    r"copies ahead|newcomers?": "write prefetch, or name the model",
    r"pledge[sd]?|redeem(?:s|ed)?|loosen(?:s|ed)?": "write reserve, commit, release",
    r"turn-takers?": "write scheduler",
}
# Of these the comments, strings and names of tests are judged, of the others the whole text.
RIDDLE_FILES = (".hpp", ".cpp", ".cu", ".cuh", ".proto")
RIDDLE_TEXTS = (".py", ".sh", ".md", ".txt", ".yaml")
TEST_NAME = re.compile(r"^TEST(?:_[FP])?\(\w+, (\w+)\)|^\s*def test_(\w+)\(")
# File and word: the user 'nobody' of a Unix system.
RIDDLES_MEANT = {("gpu/jail/privileges.hpp", "nobody"), ("docs/security.md", "nobody")}
STRING = re.compile(r'"((?:\\.|[^"\\])*)"')
# What pages and comments name although it is not in the tree: other projects' files, cases of ONNX, what a bundle unpacks.
FOREIGN = {"onnx.proto", "node/test_", "troupe-gpu/tests/gpu/run.sh"}
# Made when a test or a benchmark runs.
MADE = ("bench/results",)
LONGEST_SUBJECT = 72


def texts(root, path):
    """The lines of a file in which names count: all of a page, the comments of a source."""
    suffix = path.name if path.name in COMMENT else path.suffix
    lines = (root / path).read_text(errors="replace").splitlines()
    if suffix == ".md":
        yield from enumerate(lines, 1)
    elif suffix in COMMENT:
        for number, line in enumerate(lines, 1):
            _, mark, comment = line.partition(COMMENT[suffix])
            if mark:
                yield number, comment


def tracked(root):
    skipped = {"build", ".git"}
    for path in sorted(root.iterdir()):
        if path.name in skipped:
            continue
        yield from (p.relative_to(root) for p in ([path] if path.is_file() else sorted(path.rglob("*"))) if p.is_file())


def violations(root):
    files = list(tracked(root))
    whole = {p.as_posix() for p in files}
    ends = {"/".join(p.parts[i:]) for p in files for i in range(len(p.parts))}
    yield from riddles(root, files)
    for path in files:
        if path.parts[:2] == ("tests", "architecture"):
            continue  # plants names that are absent
        for number, line in texts(root, path):
            for name in FILE.findall(line):
                if name not in ends and name not in FOREIGN and not re.search(r"[A-Z]{3}|/\.\.", name):
                    yield f"{path}:{number}: there is no file {name}"
            if path.suffix != ".md":
                continue
            for name in PLACE.findall(line):
                if name.startswith(MADE) or any(name.startswith(each) for each in FOREIGN):
                    continue
                if not any(each.startswith(name) for each in whole):
                    yield f"{path}:{number}: there is no file or folder {name}"


def riddles(root, files):
    """Words of RIDDLES in comments, strings, pages and names of tests; other names in C++ are not judged."""
    words = [(re.compile(rf"\b(?:{word})\b", re.I), advice) for word, advice in RIDDLES.items()]
    for path in files:
        # This folder names the words.
        if path.parts[0] not in (*ROOMS, "README.md", "CONTRIBUTING.md") or path.parts[:2] == ("tests", "architecture"):
            continue
        if path.suffix not in RIDDLE_FILES + RIDDLE_TEXTS:
            continue
        for number, line in enumerate((root / path).read_text(errors="replace").splitlines(), 1):
            code, _, comment = line.partition("//")
            said = line if path.suffix in RIDDLE_TEXTS else " ".join([comment, *STRING.findall(code)])
            said += "".join(" " + words_of(first or second) for first, second in TEST_NAME.findall(line))
            for word, advice in words:
                for found in word.findall(said):
                    if (path.as_posix(), found.lower()) not in RIDDLES_MEANT:
                        yield f"{path}:{number}: '{found}': {advice}"


def words_of(name):
    """`ANameOfThis` and `a_name_of_this` as words."""
    return re.sub(r"_|(?<=[a-z])(?=[A-Z])", " ", name)


def subject_violations(lines):
    for line in lines:
        subject = line.rstrip("\n")
        if len(subject) > LONGEST_SUBJECT:
            yield f"a subject has {len(subject)} characters, {LONGEST_SUBJECT} at most: {subject}"


PLANTED = {
    "node/a.hpp": "// Kept by profile_keeper.hpp.",
    "node/b.cpp": "// See actors/node/gone.cpp.",
    "docs/page.md": "What is missing stands in [more](gone.md).",
    "docs/other.md": "The code is in `node/gone_table`.",
    "proto/x.proto": "// As in gone.proto.",
    "node/words.hpp": "// Owned by whoever owns a queue.",
    "gpu/words.cu": "// Lent to the borrower.",
    "cluster/words.cpp": 'return Invalid("x is no valid name");',
    "actors/manager/words.cpp": "int i = 0;  // Nobody's.",
    "sim/experiments/words.cpp": "// Copies ahead of requests.",
    "tests/unit/node/words.cpp": 'EXPECT_EQ(runs, 1u) << "nobody was evicted";',
    "tests/unit/node/words_test.cpp": "TEST_F(Rows, WhoeverComesFirstJoins) {",
    "tests/e2e/words_test.py": '"""Requests that nobody answers."""',
    "tests/attack/words_test.py": "    def test_answers_that_nobody_reads(self):",
    "bench/words.cpp": "// Memory that nobody has touched.",
    "bench/words.py": "# The loan of a worker.",
    "examples/words.py": 'raise ValueError(f"{name} is no valid file")',
    "deploy/words.sh": "# Waits for somebody.",
    "tests/fuzz/README.md": "Bytes of whoever deploys.",
}
ALLOWED = {
    "node/a.hpp": "// Kept by a.hpp; another project's onnx.proto; bench/AREA.py.",
    "docs/page.md": "See [this](page.md), `docs/page` and `bench/results`.",
    "docs/list.md": "| `node/test_abs` | of ONNX |",
    "node/words.cpp": 'Region& nobody = nobodys();  // The region for workers without a key.',
    "gpu/jail/privileges.hpp": "// Or 'nobody' in a container.",
    "tests/words.cpp": "const auto nobody = nobodys();  // A worker that serves no key.",
    "tests/architecture/words.py": "# Nobody is judged here.",
}


def self_test():
    for plants, expected in ((PLANTED, True), (ALLOWED, False)):
        for name, text in plants.items():
            with tempfile.TemporaryDirectory() as folder:
                file = pathlib.Path(folder) / name
                file.parent.mkdir(parents=True)
                file.write_text(text + "\n")
                if bool(list(violations(pathlib.Path(folder)))) != expected:
                    print(f"self-test: {name}: '{text}' should {'be' if expected else 'not be'} a violation")
                    return 1
    if not list(subject_violations(["x" * (LONGEST_SUBJECT + 1)])) or list(subject_violations(["x" * LONGEST_SUBJECT])):
        print("self-test: subjects are judged wrongly")
        return 1
    print("self-test: every planted violation was found, nothing allowed was refused")
    return 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if sys.argv[1:] == ["--subjects"]:
        found = list(subject_violations(sys.stdin))
    else:
        found = list(violations(pathlib.Path(sys.argv[1])))
    print("\n".join(found) if found else "every name is good")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
