"""The report of a run of chaos: a table for people, build/chaos/report.json in the shape of the benches, a timeline."""
import collections
import pathlib
import sys

from . import checks, timeline
from .history import ANSWERED

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bench"))
from report import Report  # noqa: E402  (the benches' shape)

# The figures that the faults note; each goes into the file with its p50, p99 and greatest value.
FIGURES = ("worker_recovery_ms", "worker_last_model_ms", "worker_respawn_ms", "node_detection_ms", "node_takeover_ms",
           "node_copies_ms", "manager_restart_ms", "manager_members_ms", "manager_away_failed_tries", "taken_for_dead")


def quantile(values, share):
    """The value at that share of the sorted ones: of few values the 0.99 quantile is the greatest."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def spread(values):
    return " / ".join(f"{value:.0f}" for value in (quantile(values, 0.5), quantile(values, 0.99), max(values))) if values else "-"


class Outcome:
    """The figures of one fault. Times are in milliseconds; `gap` is the longest time in which no request at all was answered."""

    def __init__(self, kind, target, note, recovery, gap):
        self.kind, self.target, self.note, self.recovery, self.gap = kind, target, note, recovery, gap


def gap(history, begin, end):
    answers = sorted(operation.ended for operation in history.operations("infer", "run")
                     if operation.outcome == ANSWERED and begin <= operation.ended <= end)
    return max((later - earlier for earlier, later in zip([begin, *answers], [*answers, end])), default=0.0) * 1e3


def print_table(outcomes):
    rows = [("fault", "times", "noticed p50/p99/max ms", "well again p50/p99/max ms", "no answer p50/p99/max ms")]
    by_kind = collections.defaultdict(list)
    for outcome in outcomes:
        by_kind[outcome.kind].append(outcome)
    for kind, some in sorted(by_kind.items()):
        noticed = [outcome.note["detection_ms"] for outcome in some if "detection_ms" in outcome.note]
        rows.append((kind, str(len(some)), spread(noticed), spread([outcome.recovery for outcome in some]),
                     spread([outcome.gap for outcome in some])))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def write(arguments, history, outcomes, findings, end, facts):
    """`facts`: {name: (value, unit)} of the whole run."""
    print_table(outcomes)
    report = Report("report", arguments.out, note=facts.pop("note", None))
    report.facts = {"seed": arguments.seed,
                    "faults": [{"kind": outcome.kind, "target": outcome.target, "recovery_ms": outcome.recovery,
                                "gap_ms": outcome.gap, **outcome.note} for outcome in outcomes],
                    "findings": {"lost": findings.lost, "duplicated": findings.duplicated, "wrong": findings.wrong},
                    "failed_tries": troubles(history)}
    for name, (value, unit) in facts.items():
        report.add(name, [value], unit)
    for name in FIGURES:
        values = [outcome.note[name] for outcome in outcomes if name in outcome.note]
        if not values:
            continue
        unit = "ms" if name.endswith("_ms") else "count"
        report.add(name, values, unit)
        if unit == "ms":
            report.add(f"{name}_p99", [quantile(values, 0.99)], unit)
    report.path.parent.mkdir(parents=True, exist_ok=True)
    timeline.write(report.path.parent / "timeline.svg", history, end, f"chaos, seed {arguments.seed}: {facts['faults'][0]} faults")
    report.write()
    findings.print()


def troubles(history):
    """{what a try came to: how often}: the first words of the message, without the parts that differ from one try to the next."""
    counts = collections.Counter(f"{kind}: {trouble[:80]}" for _, kind, _, trouble in history.failed_tries())
    return dict(counts.most_common(30))


def acknowledged(history):
    return len([operation for operation in history.operations() if operation.outcome == ANSWERED])


def facts_of(history, load, outcomes, kills, findings, seconds):
    operations = history.operations()
    return {
        "seconds": (seconds, "s"), "faults": (len(outcomes), "count"), "kills": (kills, "count"),
        "requests": (len(operations), "count"), "tries_not_answered_well": (len(history.failed_tries()), "count"),
        "acknowledged": (acknowledged(history), "count"), "acknowledged_lost": (len(findings.lost), "count"),
        "duplicated": (len(findings.duplicated), "count"), "wrong_answers": (len(findings.wrong), "count"),
        "unserved": (len(checks.unserved(history)), "count"), "clients_late_s": (load.late, "s"),
    }
