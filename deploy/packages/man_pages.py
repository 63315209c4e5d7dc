#!/usr/bin/python3
"""Makes the man pages of the packages from what each program's --help prints, and the packages' changelog.

    man_pages.py --programs build/release/bin --release 0.1.0 --out build/release/packages

A page has the help of the program, then that of each of its commands. Nothing is written by hand, so a page says what the
program says; a line of help that has none of the known shapes is an error, not text that is lost.
"""
import argparse
import gzip
import os
import pathlib
import re
import subprocess
import sys

# Program: section, what it is in one line, the pages that belong together with it.
PAGES = {
    "trouped": (8, "daemon of a cluster that serves functions on GPUs", ["troupe(1)", "troupe-store(1)"]),
    "troupe": (1, "command line and shell of a cluster that serves functions on GPUs", ["trouped(8)", "troupe-store(1)", "troupe-sim(1)"]),
    "troupe-store": (1, "checks, shows, backs up and restores what a stopped manager keeps", ["troupe(1)", "trouped(8)"]),
    "troupe-gpu-probe": (1, "says what the driver, one GPU and the libraries of a machine can do", ["trouped(8)"]),
    "troupe-sim": (1, "simulator of clusters that serve functions on GPUs", ["troupe(1)"]),
}
FILES = {"trouped": [("/etc/troupe/manager.yml, gateway.yml, node.yml", "what each daemon of the machine is started with"),
                     ("/var/lib/troupe", "what the daemons keep: metadata, models, states"),
                     ("/run/troupe", "their sockets")]}
ITEM = re.compile(r"^ {2}(\S.*)$")
HEADING = re.compile(r"^(\S.*):$")
GROUP = re.compile(r"^\[Option Group: (.*)\]$")  # its lines stand two columns further to the right
INDENT = 20  # an explanation that goes on, or that has a line of its own, begins behind so many columns


def help_of(program, words):
    done = subprocess.run([program, *words, "--help"], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        sys.exit(f"man_pages: {program} {' '.join(words)} --help: {done.returncode}: {done.stderr}")
    return done.stdout.splitlines()


def quoted(text):
    """Text as roff reads it back."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


def split_item(line):
    """('--data TEXT', 'directory of everything that lasts') of an item's first line."""
    name, _, explanation = line.strip().partition("  ")
    if not explanation:
        # A name that leaves no room is followed by one blank, or by a line break.
        found = re.match(r"^((?:-\S+|[A-Z]+)(?: TEXT| TIME| N)?\S*(?: REQUIRED)?(?: \.\.\.)?) (.+)$", line.strip())
        if found:
            return found.group(1), found.group(2)
    return name, explanation.strip()


def body(lines):
    """roff of one help text, and the words of the commands that it lists."""
    out, commands, heading, last, grouped = [], [], "", None, False
    for line in lines:
        if not line.strip():
            last = None
            continue
        if GROUP.match(line):
            grouped, last = True, None
            continue
        grouped = grouped and line.startswith("  ")
        line = line[2:] if grouped else line
        title, item = HEADING.match(line), ITEM.match(line)
        if title and not line.lower().startswith("usage:"):
            heading = title.group(1)
            out += [".PP", f"\\fB{quoted(heading)}\\fR"]
        elif line.lower().startswith("usage:"):
            out += [".PP", f"\\fB{quoted(line.split(':', 1)[1].strip())}\\fR"]
        elif last is not None and len(line) - len(line.lstrip()) >= INDENT:
            out.append(quoted(line.strip()))
        elif item:
            name, explanation = split_item(line)
            last = name
            out += [".TP", f"\\fB{quoted(name)}\\fR"] + ([quoted(explanation)] if explanation else [])
            if heading in ("Commands", "Subcommands"):
                commands.append([word for word in name.split() if re.fullmatch(r"[a-z][a-z-]*", word)])
        elif line[0] != " ":
            out += [".PP", quoted(line)]
        else:
            sys.exit(f"man_pages: this line of help has no known shape: {line!r}")
    return out, commands


def sections(program, words):
    """Of each command below `words`, in the order of the help."""
    lines, out = help_of(program, words), []
    text, commands = body(lines)
    if words:
        out += [f".SS {quoted(' '.join([program.name, *words]))}"]
    out += text
    for command in commands:
        # A companion is another program with a page of its own; `help` is what this page has.
        if not command or command[0] in ("help", "shell", "simulate", "chaos-sim", "experiment", "audit", "store") and program.name == "troupe":
            continue
        out += sections(program, command if program.name == "troupe" else words + command)
    return out


def page(program, release):
    section, summary, related = PAGES[program.name]
    out = [f'.TH {program.name.upper()} {section} "" "Troupe {release}" "Troupe"', ".SH NAME",
           f"{quoted(program.name)} \\- {quoted(summary)}", ".SH DESCRIPTION"]
    out += sections(program, [])
    if program.name in FILES:
        out.append(".SH FILES")
        for path, what in FILES[program.name]:
            out += [".TP", f"\\fB{quoted(path)}\\fR", quoted(what)]
    out += [".SH SEE ALSO", ", ".join(f"\\fB{quoted(one[:-3])}\\fR{one[-3:]}" for one in related)]
    return "\n".join(out) + "\n"


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    # No name and no time inside: two builds of one commit give the same bytes.
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def changelog(release):
    moment = int(os.environ.get("SOURCE_DATE_EPOCH", "0")) or int(subprocess.run(
        ["git", "log", "-1", "--format=%ct"], capture_output=True, text=True, cwd=pathlib.Path(__file__).parent).stdout or 0)
    date = subprocess.run(["date", "--utc", "--rfc-email", f"--date=@{moment}"], capture_output=True, text=True, check=True).stdout.strip()
    return (f"troupe ({release}) bookworm; urgency=medium\n\n  * Release {release}; docs/status.md says what is in it.\n\n"
            f" -- Troupe maintainers <maintainers@troupe.invalid>  {date}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=pathlib.Path, required=True)
    parser.add_argument("--release", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    given = parser.parse_args()
    for name, (section, _, _) in PAGES.items():
        if name == "troupe-gpu-probe" and not (given.programs / name).exists():
            continue  # it is built where a CUDA toolkit is
        write(given.out / f"{name}.{section}.gz", page(given.programs / name, given.release))
    write(given.out / "changelog.gz", changelog(given.release))


if __name__ == "__main__":
    main()
