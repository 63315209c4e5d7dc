#!/usr/bin/env python3
"""The pages that say what is built agree with those that they lead to.

docs/status.md is the summary: it is short, and each row has a state, a link to the chapter of docs/evidence.md that
shows it, and no figure which that chapter lacks. docs/evidence.md is for looking up: a row that names a bench or an
experiment links to the section of docs/experiments.md or docs/measurements.md with its figures, and quotes no figure
which that section lacks. So a figure is never updated in one page alone. Links of any page lead to sections that exist.

usage: figures.py ROOT          prints each violation as file:line: rule; exit 1 when there is one
       figures.py --self-test   plants violations of each rule and checks that they are found
"""
import pathlib
import re
import sys
import tempfile

STATUS, EVIDENCE = "docs/status.md", "docs/evidence.md"
FIGURE_PAGES = ("docs/experiments.md", "docs/measurements.md")
MOST_WORDS, MOST_ROWS = 1500, 45  # of the status; words as `wc -w` counts them
STATES = ("done", "part", "open")
APPENDIX = "notes"  # the chapter of the evidence to which its own rows lead
LINK = re.compile(r"\]\(([^)\s#]*)#([\w-]+)\)")
ANY_LINK = re.compile(r"\[[^\]]*\]\([^)]*\)")
CODE = re.compile(r"`[^`]*`")
# A figure: decimals, or at least three digits. Smaller numbers stand in too many places to prove anything.
FIGURE = re.compile(r"(?<![\w.#-])(\d+\.\d+|\d{1,3}(?:,\d{3})+|\d{3,})(?:(?=x\b)|(?![\w-]))")
PAPER = re.compile(r"^00[1-4]$")
# `| 002: order by RRC (5.2) |`: what stands in brackets is a section of the paper.
OF_A_PAPER = re.compile(r"^\| 00[1-4][^|]*")
BRACKETS = re.compile(r"\([^)]*\)")
# What a row names that was measured. gpu-results.md is the page of real GPUs.
MEASURED = re.compile(r"make bench-\w|bench/\w|troupe experiment")
MEASURED_AT = re.compile(r"\]\((?:experiments|measurements)\.md#|\]\(gpu-results\.md\)")


def anchor(heading):
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def sections(page):
    """The text below each heading, deeper headings included, by the heading's anchor."""
    lines = page.read_text().splitlines() if page.is_file() else []
    found = ((i, re.match(r"(#+) (.*)", line)) for i, line in enumerate(lines))
    heads = [(i, len(match.group(1)), anchor(match.group(2))) for i, match in found if match]
    for at, (begin, level, name) in enumerate(heads):
        end = next((i for i, deeper, _ in heads[at + 1:] if deeper <= level), len(lines))
        yield name, "\n".join(lines[begin:end])


def rows(page):
    """(number, line, head): each row below the head of its table, and that head."""
    head = None
    for number, line in enumerate(page.read_text().splitlines() if page.is_file() else [], 1):
        if not line.startswith("|"):
            head = None
        elif head is None:
            head = line
        elif not line.startswith("|---"):
            yield number, line, head


def cells(line):
    return [cell.strip() for cell in CODE.sub("``", line.replace("\\|", "")).strip().strip("|").split("|")]


def figures(text):
    plain = ANY_LINK.sub("", CODE.sub("", text))
    plain = OF_A_PAPER.sub(lambda thing: BRACKETS.sub("", thing.group(0)), plain)
    return [figure for figure in FIGURE.findall(plain) if not PAPER.match(figure)]


def figure_violations(root, path, leads_to):
    """Figures of rows that stand in none of the sections, of the pages `leads_to`, that the row links to."""
    known = {page: dict(sections(root / page)) for page in leads_to}
    for number, line, _ in rows(root / path):
        linked = [(f"docs/{page}", name) for page, name in LINK.findall(line) if f"docs/{page}" in leads_to]
        there = {figure for page, name in linked for figure in FIGURE.findall(known[page].get(name, ""))}
        for figure in figures(line) if linked else []:
            if figure not in there:
                yield f"{path}:{number}: {figure} stands in none of the sections that the row links to"


def link_violations(root):
    """Links, of any page, to a section that is not there."""
    pages = [page for page in root.rglob("*.md") if page.relative_to(root).parts[0] not in ("build", ".git")]
    known = {page.resolve(): {name for name, _ in sections(page)} for page in pages}
    for page in sorted(pages):
        for number, line in enumerate(page.read_text().splitlines(), 1):
            for target, name in LINK.findall(line):
                at = (page.parent / target).resolve() if target else page.resolve()
                if "://" not in target and name not in known.get(at, {name} if at.exists() else ()):
                    where = page.relative_to(root).as_posix()
                    yield f"{where}:{number}: {target or 'this page'} has no section #{name}"


def status_violations(root):
    page = root / STATUS
    if not page.is_file():
        return
    words = len(page.read_text().split())
    if words > MOST_WORDS:
        yield f"{STATUS}: has {words} words, {MOST_WORDS} at most: what is for looking up goes to {EVIDENCE}"
    all_rows = list(rows(page))
    if len(all_rows) > MOST_ROWS:
        yield f"{STATUS}: has {len(all_rows)} rows, {MOST_ROWS} at most: which of them belong together?"
    linked = set()
    for number, line, _ in all_rows:
        _, state, missing, *_ = cells(line) + ["", "", ""]
        chapters = {name for target, name in LINK.findall(line) if f"docs/{target}" == EVIDENCE}
        linked |= chapters
        if state not in STATES:
            yield f"{STATUS}:{number}: the state is '{state}', not {' or '.join(STATES)}: the next cell says more"
        elif state != "done" and not missing:
            yield f"{STATUS}:{number}: does not say what is missing"
        if not chapters:
            yield f"{STATUS}:{number}: links to no section of {EVIDENCE}"
    for chapter in chapters_of(root / EVIDENCE):
        if chapter not in linked and chapter != APPENDIX:
            yield f"{STATUS}: no row leads to #{chapter} of {EVIDENCE}"


def chapters_of(page):
    for line in page.read_text().splitlines() if page.is_file() else []:
        if line.startswith("## "):
            yield anchor(line[3:])


def evidence_violations(root):
    for number, line, head in rows(root / EVIDENCE):
        if len(cells(line)) != len(cells(head)):
            yield f"{EVIDENCE}:{number}: has {len(cells(line))} cells in a table of {len(cells(head))}"
        if MEASURED.search(line) and not MEASURED_AT.search(line):
            yield f"{EVIDENCE}:{number}: names a bench or an experiment and links to no section that has its figures"


def violations(root):
    yield from status_violations(root)
    yield from figure_violations(root, STATUS, (EVIDENCE, *FIGURE_PAGES))
    yield from evidence_violations(root)
    yield from figure_violations(root, EVIDENCE, FIGURE_PAGES)
    yield from link_violations(root)


MEASUREMENTS = "## Engine\n\n26.1 ms, 8,474/s\n\n### Deeper\n\n0.66x\n\n## Other\n\n1.5 s\n"
HEAD = "## Engines\n\n| thing | state | what shows it |\n|---|---|---|\n"
GOOD = "| speed | done | 26.1 ms ([more](measurements.md#engine)) |\n"
STATUS_HEAD = "| thing | state | missing | evidence |\n|---|---|---|---|\n"
SHOWN = "[engines](evidence.md#engines) |\n"
# A page, a text that is put at its end, and what is said of it; None: nothing.
PLANTED = (
    ("evidence.md", "| speed | done | 26.1 ms, 8,474/s, 0.66x of 002's ([more](measurements.md#engine)) |", None),
    ("evidence.md", "| speed | done | 26.2 ms ([more](measurements.md#engine)) |", "26.2 stands in none"),
    ("evidence.md", "| speed | done | 1.5 s ([more](measurements.md#engine)) |", "1.5 stands in none"),
    ("evidence.md", "| speed | done | 26.1 ms ([more](measurements.md#motor)) |", "no section #motor"),
    ("evidence.md", "| 002: speed (7.1) | done | 26.1 ms ([more](measurements.md#engine)) |", None),
    ("evidence.md", "| 002: speed (7.1) | done | 7.1 ms ([more](measurements.md#engine)) |", "7.1 stands in none"),
    ("evidence.md", "| speed | done | 99.9 %, of no page |", None),
    ("evidence.md", "| speed | done | `make bench-engine` |", "names a bench"),
    ("evidence.md", "| speed | done | `bench/engine.py` |", "names a bench"),
    ("evidence.md", "| speed | done | `troupe experiment speed` |", "names a bench"),
    ("evidence.md", "| speed | done | `make bench-engine`, `bench/x.py` ([more](measurements.md#engine)) |", None),
    ("evidence.md", "| speed | done | `make bench-engine` ([real GPUs](gpu-results.md)) |", None),
    ("evidence.md", "| comments of `bench/` | done | by review |", None),
    ("evidence.md", "| speed | done | there | and here |", "4 cells in a table of 3"),
    ("evidence.md", "| `a \\| b` | done | there |", None),
    ("evidence.md", "| speed | done | [below](#motors) |", "this page has no section #motors"),
    ("evidence.md", "| speed | done | there |\n\n## Notes\n\nMore.", None),
    ("evidence.md", "| speed | done | there |\n\n## Motors\n\nNot in the status.", "no row leads to #motors"),
    ("status.md", "| speed | done | 26.1 ms | " + SHOWN, None),
    ("status.md", "| speed | done | 26.2 ms | " + SHOWN, "26.2 stands in none"),
    ("status.md", "| speed | done | 0.66x | [engine](measurements.md#engine), " + SHOWN, None),
    ("status.md", "| speed | done, nearly | | " + SHOWN, "the state is 'done, nearly'"),
    ("status.md", "| speed | part | on one thread only | " + SHOWN, None),
    ("status.md", "| speed | part | | " + SHOWN, "does not say what is missing"),
    ("status.md", "| speed | open | | " + SHOWN, "does not say what is missing"),
    ("status.md", "| speed | done | | by review |", "links to no section"),
    ("status.md", "| speed | done | | [motors](evidence.md#motors) |", "evidence.md has no section #motors"),
    ("status.md", "| speed | done | | " + SHOWN + "\n" + "word " * (MOST_WORDS - 30), None),
    ("status.md", "| speed | done | | " + SHOWN + "\n" + "word " * MOST_WORDS, "words, 1500 at most"),
    ("status.md", ("| speed | done | | " + SHOWN) * (MOST_ROWS - 1), None),
    ("status.md", ("| speed | done | | " + SHOWN) * MOST_ROWS, "rows, 45 at most"),
    ("options.md", "See [motors](evidence.md#motors).", "evidence.md has no section #motors"),
    ("options.md", "See [engines](evidence.md#engines) and [elsewhere](https://example.org/page#motors).", None),
)


def self_test():
    for name, text, expected in PLANTED:
        with tempfile.TemporaryDirectory() as folder:
            docs = pathlib.Path(folder) / "docs"
            docs.mkdir()
            pages = {"measurements.md": MEASUREMENTS, "gpu-results.md": "", "options.md": "",
                     "evidence.md": HEAD + GOOD, "status.md": STATUS_HEAD + "| speed | done | | " + SHOWN}
            pages[name] += text + "\n"
            for page, written in pages.items():
                (docs / page).write_text(written)
            found = list(violations(pathlib.Path(folder)))
            if not any(expected in each for each in found) if expected else found:
                print(f"self-test: {name}: '{text[:100]}': expected '{expected or 'nothing'}', found {found}")
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
