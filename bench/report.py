"""The common form of every benchmark's result: build/bench/AREA.json, and a table for people.

    report = Report("engine")
    report.add("resnet50_b1_ms/threads=1", values, "ms", baseline="torch", baseline_values=others)
    report.write()

Compared things are measured in alternating rounds; `values[i]` and `baseline_values[i]` come from round i, and the
ratio that the table shows is the median of the rounds' ratios.
"""
import argparse
import json
import pathlib
import platform
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def commit():
    carried = ROOT / "COMMIT"  # the commit of a bundle (tests/gpu/bundle.sh), which has no history
    if carried.exists():
        return carried.read_text().strip()
    result = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return result.stdout.strip() or "unknown"


def machine():
    model, cores = platform.machine(), 0
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            cores += 1
    return f"{model}, {cores} cores"


def percentile(values, percent):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * percent / 100))]


class Report:
    def __init__(self, area, directory=None, note=None):
        """`note`: what a reader of the figures must know."""
        self.path = pathlib.Path(directory or ROOT / "build" / "bench") / f"{area}.json"
        self.figures, self.ratios, self.note = [], [], note
        self.facts = {}  # further facts for the file

    def add(self, name, values, unit, baseline=None, baseline_values=None):
        """One figure: the median of `values`, one per round, beside that of its baseline."""
        values = list(values)
        figure = {"name": name, "value": statistics.median(values), "unit": unit, "baseline": baseline,
                  "baseline_value": statistics.median(baseline_values) if baseline_values else None,
                  "runs": len(values), "min": min(values), "max": max(values)}
        ratio = None
        if baseline_values:
            ratio = statistics.median(v / b for v, b in zip(values, baseline_values) if b)
            figure["ratio"] = ratio
        self.figures.append(figure)
        self.ratios.append(ratio)
        return figure

    def keep_others(self, of_this):
        """Keeps the figures that an earlier run wrote into the file, but for those that this run measures: `of_this(name)` is
        true for these."""
        if not self.path.exists():
            return
        others = [figure for figure in json.loads(self.path.read_text())["figures"] if not of_this(figure["name"])]
        self.ratios = [figure.get("ratio") for figure in others] + self.ratios
        self.figures = others + self.figures

    def print_table(self):
        rows = [("figure", "value", "unit", "min", "max", "baseline", "", "ratio")]
        for figure, ratio in zip(self.figures, self.ratios):
            base = figure["baseline_value"]
            rows.append((figure["name"], f"{figure['value']:.4g}", figure["unit"], f"{figure['min']:.4g}",
                         f"{figure['max']:.4g}", "" if base is None else f"{base:.4g}", figure["baseline"] or "",
                         "" if ratio is None else f"{ratio:.2f}"))
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        for row in rows:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())

    def write(self, quiet=False):
        """Whole or not at all. `quiet`: more figures come, and the table with them."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        result = {"commit": commit(), "machine": machine(), **self.facts, "figures": self.figures}
        if self.note:
            result["note"] = self.note
        fresh = self.path.with_suffix(".json.new")
        fresh.write_text(json.dumps(result, indent=2) + "\n")
        fresh.replace(self.path)
        if quiet:
            return
        if self.note:
            print(f"({self.note})")
        self.print_table()
        print(f"written to {self.path}")


def run_parts(area, note, usage, parts, seconds=None, seconds_help=None):
    """The command line of a benchmark of several parts ({name: function of a report and the arguments}), of which --only
    chooses, and its report. `seconds`: the default of --seconds, for a benchmark that has it."""
    parser = argparse.ArgumentParser(description=usage, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"))
    if seconds is not None:
        parser.add_argument("--seconds", type=int, default=seconds, help=seconds_help)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=list(parts), default=list(parts))
    arguments = parser.parse_args()
    arguments.build = arguments.build.resolve()
    report = Report(area, note=note)
    for part in arguments.only:
        parts[part](report, arguments)
    print(f"({note})")
    report.print_table()
    if set(arguments.only) != set(parts):
        report.keep_others({figure["name"] for figure in report.figures}.__contains__)
    report.write(quiet=True)
    print(f"written to {report.path}")
    return 0
