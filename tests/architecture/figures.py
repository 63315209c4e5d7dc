#!/usr/bin/env python3
"""Each figure that a row of docs/status.md quotes stands in the section that the row links to, so that a figure is never updated
in one page alone.

usage: figures.py ROOT          prints each row that quotes a figure which its section lacks; exit 1 when there is one
       figures.py --self-test   plants such rows and checks that they are found
"""
import pathlib
import re
import sys
import tempfile

PAGES = ("experiments.md", "measurements.md")
LINK = re.compile(r"\]\((experiments\.md|measurements\.md)#([\w-]+)\)")
# A figure: decimals, or at least three digits. Smaller numbers stand in too many places to prove anything.
FIGURE = re.compile(r"(?<![\w.#-])(\d+\.\d+|\d{1,3}(?:,\d{3})+|\d{3,})(?:(?=x\b)|(?![\w-]))")
PAPER = re.compile(r"^00[1-4]$")


def anchor(heading):
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def sections(page):
    """The text below each heading, deeper headings included, by the heading's anchor."""
    lines = page.read_text().splitlines() if page.is_file() else []
    heads = [(i, len(m.group(1)), anchor(m.group(2))) for i, m in enumerate(re.match(r"(#+) (.*)", line) for line in lines) if m]
    for at, (begin, level, name) in enumerate(heads):
        end = next((i for i, deeper, _ in heads[at + 1:] if deeper <= level), len(lines))
        yield name, "\n".join(lines[begin:end])


def violations(root):
    pages = {page: dict(sections(root / "docs" / page)) for page in PAGES}
    for number, line in enumerate((root / "docs" / "status.md").read_text().splitlines(), 1):
        linked = LINK.findall(line)
        if not line.startswith("|") or not linked:
            continue
        known = set()
        for page, name in linked:
            if name not in pages[page]:
                yield f"docs/status.md:{number}: {page} has no section #{name}"
            known.update(FIGURE.findall(pages[page].get(name, "")))
        plain = re.sub(r"`[^`]*`|\[[^\]]*\]\([^)]*\)", "", line)
        for figure in FIGURE.findall(plain):
            if figure not in known and not PAPER.match(figure):
                yield f"docs/status.md:{number}: {figure} stands in none of the sections that the row links to"


def self_test():
    page = "## Engine\n\n26.1 ms, 8,474/s\n\n### Deeper\n\n0.66x\n\n## Other\n\n1.5 s\n"
    rows = {"| speed | done | 26.1 ms, 8,474/s, 0.66x of 002's ([more](measurements.md#engine)) |": False,
            "| speed | done | 26.2 ms ([more](measurements.md#engine)) |": True,
            "| speed | done | 1.5 s ([more](measurements.md#engine)) |": True,
            "| speed | done | 26.1 ms ([more](measurements.md#motor)) |": True,
            "| speed | done | 99.9 %, of no page |": False}
    for row, expected in rows.items():
        with tempfile.TemporaryDirectory() as folder:
            docs = pathlib.Path(folder) / "docs"
            docs.mkdir()
            (docs / "measurements.md").write_text(page)
            (docs / "status.md").write_text(row + "\n")
            if bool(list(violations(pathlib.Path(folder)))) != expected:
                print(f"self-test: '{row}' should {'be' if expected else 'not be'} a violation")
                return 1
    print("self-test: every planted violation was found, nothing allowed was refused")
    return 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    found = list(violations(pathlib.Path(sys.argv[1])))
    print("\n".join(found) if found else "the pages agree")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
