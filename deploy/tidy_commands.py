#!/usr/bin/env python3
"""Writes BUILD/tidy/compile_commands.json for clang-tidy.  usage: tidy_commands.py BUILD

GCC's precompiled headers mean nothing to clang, so each -include of one is pointed at a copy of its header that has no .gch
beside it. GCC's omp.h, which clang has no other for, is copied beside them. A unit that is made of several sources becomes a
command for each of them, as if it were compiled alone."""
import json
import pathlib
import re
import shutil
import subprocess
import sys

build = pathlib.Path(sys.argv[1]).resolve()
root = pathlib.Path(__file__).resolve().parent.parent
tidy = build / "tidy"
tidy.mkdir(exist_ok=True)
OWN_HEADERS = pathlib.Path(subprocess.run(["c++", "-print-file-name=include"], capture_output=True, text=True, check=True).stdout.strip())
# Clang has no form of this attribute that names the function which frees.
(tidy / "omp.h").write_text((OWN_HEADERS / "omp.h").read_text().replace("__malloc__ (omp_free)", "__malloc__"))
UNIT = re.compile(r"/units/\w+_\d+\.cpp$")
PART = re.compile(r'^#include "(.+\.cpp)"$', re.M)


def redirect(match):
    header = pathlib.Path(match.group(1))
    copy = tidy / (header.parent.name + ".hxx")
    shutil.copyfile(header, copy)
    return f"-include {copy}"


def parts(file):
    """The sources that `file` is made of."""
    return [str(root / part) for part in PART.findall(pathlib.Path(file).read_text())] if UNIT.search(file) else [file]


def alone(entry):
    """One entry for each source of `entry`."""
    command = re.sub(r"-include (\S+/cmake_pch\.hxx)", redirect, entry["command"])
    command = re.sub(r" (-Winvalid-pch|-Wno-subobject-linkage)\b", "", command)  # clang does not know them
    command += f" -isystem {tidy} -Wno-unknown-pragmas -Wno-ignored-attributes"  # hints to GCC's vectoriser
    command = command[command.find("/usr/bin/c++"):] if "/usr/bin/c++" in command else command
    for file in parts(entry["file"]):
        yield {**entry, "command": command.replace(entry["file"], file), "file": file}


commands = json.loads((build / "compile_commands.json").read_text())
(tidy / "compile_commands.json").write_text(json.dumps([one for entry in commands for one in alone(entry)]))
