#!/usr/bin/python3
"""The house rules in numbers: the largest classes, the sources of actors/ without CAF, flags, and the first build.

usage: house.py [--first-build] [--output DIR]

--first-build builds what `make demo` runs, in a clean folder and without a compiler cache, and times it: some 10 minutes of a
quiet machine. Without it only the steps of that build are counted.
"""
import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from report import ROOT, Report

sys.path.insert(0, str(ROOT / "tests" / "architecture"))
import rules  # noqa: E402

ROOMS = sorted(rules.BELOW)
LARGEST = 10


def classes():
    """{name: (methods, sources)} of every class, by the measure of the house rules; of equal names the larger class."""
    found = {}
    for room in ROOMS:
        for name, size in classes_of(room).items():
            found[name] = max(size, found.get(name, size))
    return found


def classes_of(room):
    methods, sources = {}, collections.defaultdict(set)
    for file in rules.sources(ROOT, room):
        text = file.read_text(errors="replace")
        for name, count, _, _ in rules.measure(text):
            methods[name] = max(count, methods.get(name, 0))
        if file.suffix == ".cpp":
            for name in rules.DEFINITION.findall(rules.STRING.sub('""', rules.COMMENT.sub("", text))):
                sources[name].add(file)
    return {name: (count, max(1, len(sources[name]))) for name, count in methods.items()}


def lines_without_caf():
    """The lines of sources in actors/ that neither include CAF nor name it."""
    texts = [file.read_text(errors="replace") for file in rules.sources(ROOT, "actors")]
    return sum(text.count("\n") for text in texts if not re.search(r"\bcaf\b", text))


def flags():
    text = (ROOT / "actors" / "daemon" / "config.cpp").read_text()
    return len(re.findall(r"OptionGroup::k(?!Advanced)\w+,", text))


def first_build(timed):
    """(steps, minutes or None) of what `make demo` builds."""
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, CCACHE_DISABLE="1")
        configured = ["cmake", "-S", str(ROOT), "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"]
        begin = time.monotonic()
        subprocess.run(configured, check=True, stdout=subprocess.DEVNULL)
        build = ["ninja", "-C", folder, "programs"]
        commands = subprocess.run(["ninja", "-C", folder, "-t", "commands", "programs"], check=True, capture_output=True, text=True)
        steps = commands.stdout.count("\n")
        if not timed:
            return steps, None
        subprocess.run([*build, f"-j{os.cpu_count()}"], check=True, env=environment, stdout=subprocess.DEVNULL)
        return steps, (time.monotonic() - begin) / 60


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first-build", action="store_true")
    parser.add_argument("--output", type=pathlib.Path)
    arguments = parser.parse_args()
    report = Report("house", arguments.output)
    found = classes()
    for name in sorted(found, key=lambda one: (-found[one][0], one))[:LARGEST]:
        report.add(f"class_methods/{name}", [found[name][0]], "methods")
        report.add(f"class_sources/{name}", [found[name][1]], "sources")
    report.add("actors_lines_without_caf", [lines_without_caf()], "lines")
    report.add("flags", [flags()], "flags")
    steps, minutes = first_build(arguments.first_build)
    report.add("first_build_steps", [steps], "steps")
    if minutes is not None:
        report.add("first_build_minutes", [minutes], "min")
    report.write()


if __name__ == "__main__":
    main()
