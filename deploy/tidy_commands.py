#!/usr/bin/env python3
"""Writes BUILD/tidy/compile_commands.json for clang-tidy: GCC's precompiled headers mean nothing to clang, so each
-include of one is pointed at a copy of its header that has no .gch beside it.  usage: tidy_commands.py BUILD"""
import json
import pathlib
import re
import shutil
import sys

build = pathlib.Path(sys.argv[1]).resolve()
tidy = build / "tidy"
tidy.mkdir(exist_ok=True)
commands = json.loads((build / "compile_commands.json").read_text())


def redirect(match):
    header = pathlib.Path(match.group(1))
    copy = tidy / (header.parent.name + ".hxx")
    shutil.copyfile(header, copy)
    return f"-include {copy}"


for entry in commands:
    command = re.sub(r"-include (\S+/cmake_pch\.hxx)", redirect, entry["command"])
    command = command.replace("-Winvalid-pch", "")
    entry["command"] = command[command.find("/usr/bin/c++"):] if "/usr/bin/c++" in command else command
(tidy / "compile_commands.json").write_text(json.dumps(commands))
