#!/usr/bin/python3
"""docs/gpu-results.md from the results of tests/gpu/run.sh (bench/results/<GPU>-<date>.json), beside the papers' figures.

usage: gpu_page.py [--results DIR] [--page FILE] [--check]      --check: exit 1 when the page is another one
"""
import argparse
import json
import pathlib
import sys

from report import ROOT

# What is measured; the figures that show it (a prefix, and which value of each is shown); the goal; the papers' figure and its
# place.
ROWS = [
    ("host to device, over a plain pinned copy", [("copy_in/registered", "ratio")], "at least 97 %", ""),
    ("pageable copies, over a plain pinned copy", [("copy_in/pageable", "ratio")], "",
     "pinned memory takes 35 % off a swap (Torpor, Fig. 7)"),
    ("device to host, over a plain pinned copy", [("copy_out/", "ratio")], "", ""),
    ("mapping with access, unmapping (us)", [("map_and_set_access_us", "value"), ("unmap_call_us", "value")], "", ""),
    ("native: resident network, batch 1 (ms)", [("native_ms/", "value")], "",
     "ResNet-50 11, ResNet-152 25, Bert-qa 42 on a V100 (Torpor, Table 4)"),
    ("in another precision, without CUDA graphs, by persistent kernels, over FP32 with graphs", [("variant_compute_ms/", "ratio")], "", ""),
    ("swap and run (ms), over native", [("swap_run_ms/", "both")], "",
     "over PCIe ResNet-50 13, ResNet-152 25, Bert-qa 144 (Torpor, Table 4); pipelining 15 %, grouping up to 22 % (Fig. 7)"),
    ("swap and run, over max(link, run)", [("swap_run_over_max/", "ratio")], "at most 1.10", ""),
    ("link use of a swap, over a plain pinned copy", [("link_use/", "ratio")], "at least 97 %", ""),
    ("start of a function (ms)", [("function_start_ms/", "value")], "2 ms beyond its first group",
     "5 ms instead of 5.8 s (StreamBox, 9.1); over 10x less than a cold start (Torpor, Table 1)"),
    ("a further function in one runtime, beyond its weights (bytes)", [("extra_function_", "value")],
     "at most 1 MB", ""),
    ("device memory per function (MB): one runtime, a process each", [("device_memory_per_function_mb/", "value")],
     "", "79 to 82 % less (StreamBox, 9.1)"),
    ("one function by SMs (ms)", [("share_latency_ms/", "value")], "", "ResNet gains nothing beyond 24 % (FaST-GShare, 5.2)"),
    ("a neighbour's p98, over alone", [("neighbour_p98_ms/", "ratio")], "within 1.15 with shares", ""),
    ("throughput over one instance racing", [("throughput/", "ratio")], "",
     "eight of 12 %: ResNet 4.16x (296.8 over 71.37 requests/s), RNNT 3.46x (43.24 over 12.51), GNMT 1.52x (43.79 over 28.85) "
     "(FaST-GShare, 5.3)"),
    ("SMs busy, their occupancy meanwhile (%)", [("sm_busy/", "value"), ("sm_occupancy/", "value")], "",
     "RNNT: 98 % busy, about 10 % occupied; racing below 40 % busy (FaST-GShare, 5.3)"),
    ("requests/s of a whole system over HTTP", [("requests_per_second/", "value")], "", ""),
    ("a killed worker: to the next answer (ms), failed requests",
     [("killed_worker_recovery_ms", "value"), ("killed_worker_failed_requests", "value")], "none fails", ""),
    ("an illegal access: worker ended, another one answers (ms)", [("illegal_access_", "value")], "", ""),
]
HEAD = """# Results on real GPUs

<!-- Written by bench/gpu_page.py from bench/results: change that, not this. -->
"""
NOT_YET = """**Not yet measured.** No GPU was at hand where this was built; `tests/gpu/run.sh` on a machine with one gives the figures
(`--dry-run` says what it needs and would do), and `bench/gpu_page.py` writes this page from them.
"""
TAIL = """
`bench/gpu.py --help` says what each figure is. RNNT and GNMT are not among the networks that it makes; a BERT stands beside the
ResNet instead.

What was shown without a GPU, on a driver over host memory (`gpu/cuda/fake`): the device contract, ONNX's cases on the bodies of
the kernels, the worker and whole daemons with the plug-in, and that all of this script runs. That says that the logic is right,
not that it is fast, and not that the GPU's compiler, cuDNN and cuBLAS agree: run the script first.
"""


def number(value):
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def shown(figure, what):
    ratio = figure.get("ratio")
    if what == "ratio":
        return None if ratio is None else f"{ratio:.2f}"
    if what == "both" and ratio is not None:
        return f"{number(figure['value'])} ({ratio:.2f}x)"
    return number(figure["value"])


def cell(figures, wanted):
    parts = []
    for prefix, what in wanted:
        for figure in figures:
            text = shown(figure, what) if figure["name"].startswith(prefix) else None
            if text is not None:
                rest = figure["name"].partition("/")[2] if "/" in figure["name"] else figure["name"]
                parts.append(f"{rest} {text}")
    return "; ".join(parts) or "not measured"


def table(result):
    figures = result["figures"] if result else None
    lines = ["| what | goal (H200) | in the papers | here |", "|---|---|---|---|"]
    for what, wanted, goal, paper in ROWS:
        lines.append(f"| {what} | {goal or '-'} | {paper or '-'} | {cell(figures, wanted) if result else 'not yet measured'} |")
    return "\n".join(lines) + "\n"


def goals(result):
    lines = [f"- {'met' if goal['met'] else '**missed**'}: {goal['goal']}: `{goal['figure']}` {number(goal['value'])}"
             for goal in result["goals"]]
    return "\n".join(lines + [f"- not measured: {note}" for note in result["notes"]] +
                     [f"- failed: {failure}" for failure in result["failures"]]) + "\n"


def page(results):
    """`results`: {file name: its content}; figures of small networks or of a virtual GPU are left out."""
    parts = [HEAD]
    real = {name: each for name, each in results.items() if not each["small"] and each["device"].startswith("cuda:")}
    if not real:
        parts += [NOT_YET, table(None)]
    for name, result in sorted(real.items(), reverse=True):
        driver = f"driver {result['driver']}; " if result.get("driver") else ""
        parts += [f"## {name}\n\nCommit {result['commit']}; {result['machine']}; {driver}[{name}.json](../bench/results/{name}.json).\n",
                  table(result), goals(result)]
    return "\n".join(parts) + TAIL


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "bench" / "results")
    parser.add_argument("--page", type=pathlib.Path, default=ROOT / "docs" / "gpu-results.md")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    results = {file.stem: json.loads(file.read_text()) for file in arguments.results.glob("*.json")}
    # What troupe-gpu-probe wrote lies beside the figures.
    text = page({stem: result for stem, result in results.items() if "figures" in result})
    if not arguments.check:
        arguments.page.write_text(text)
    elif text != arguments.page.read_text():
        sys.exit(f"{arguments.page} is not what its results say: run bench/gpu_page.py")


if __name__ == "__main__":
    main()
