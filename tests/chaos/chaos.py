#!/usr/bin/python3
"""Real processes, real kills: a cluster under load while its processes, networks and disks fail, one fault after the other.

usage: chaos.py [--seconds N] [--seed S] [--rate R] [--faults NAME,...] [--out DIR] [--list]

Fails when something acknowledged is lost or is there twice, when an answer is wrong, and when the cluster does not
return to health; never for a time. Which faults come in which order, with which targets, follows from the seed.
"""
import argparse
import itertools
import pathlib
import random
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

from harness import HttpError  # noqa: E402
from rig import checks, faults, network, report  # noqa: E402
from rig.bench import Bench  # noqa: E402
from rig.history import History  # noqa: E402
from rig.load import Churn, OpenLoop, Tally, deploy_all  # noqa: E402
from rig.site import ALL, Site  # noqa: E402
from rig.watch import Watch  # noqa: E402


def plan(names, seed):
    """All faults in a random order, then all again in another one, without end."""
    order = random.Random(f"plan {seed}")
    while True:
        for name in order.sample(names, len(names)):
            yield name, random.Random(order.random())


class Run:
    def __init__(self, arguments, site):
        self.arguments, self.site = arguments, site
        self.history = History()
        self.findings, self.outcomes, self.kills = checks.Findings(), [], 0
        self.runs = checks.Runs(site, self.findings)

    def go(self):
        deploy_all(self.site)
        checks.wait_served(self.site, self.history)
        self.watch = Watch(self.site, self.history).start()
        load = OpenLoop(self.site, self.history, self.arguments.rate, self.arguments.seed).start()
        churn = Churn(self.site, self.history, self.arguments.seed).start()
        tally = Tally(self.site, self.history).start()
        trouble = ""
        try:
            self.break_things()
        except (AssertionError, HttpError, OSError) as failed:  # an AssertionError of eventually() says what does not come back
            trouble = f"{type(failed).__name__}: {failed}"
        load.stop(), churn.stop(), tally.stop(), self.watch.stop()
        end = time.monotonic()
        if not trouble:
            checks.final(self.site, self.history, self.runs, tally, faults.EXACT, self.findings)
        facts = report.facts_of(self.history, load, self.outcomes, self.kills, self.findings, end - self.history.start)
        facts["runs_left_running"] = (len(self.runs.running), "count")
        report.write(self.arguments, self.history, self.outcomes, self.findings, end, facts)
        return trouble

    def break_things(self):
        available = faults.available(self.site)
        names = self.arguments.faults or sorted(available)
        end = time.monotonic() + self.arguments.seconds
        for name, chance in plan(names, self.arguments.seed):
            if time.monotonic() >= end:
                return
            self.one(name, available[name], chance)

    def one(self, name, fault, chance):
        bench = Bench(self.site, self.history, self.watch, chance)
        self.history.mark("kind", "", name)
        fault(bench)
        mended = time.monotonic()
        self.site.wait_members()
        checks.wait_served(self.site, self.history)
        well = time.monotonic()
        self.runs.look()
        self.kills += bench.kills
        outcome = report.Outcome(name, bench.target, bench.note, (well - mended) * 1e3,
                                 report.gap(self.history, bench.began, well))
        self.outcomes.append(outcome)
        notes = ", ".join(f"{key} {value:.0f}" for key, value in bench.note.items())
        print(f"{name} at {bench.target}: well after {outcome.recovery:.0f} ms, no answer for {outcome.gap:.0f} ms"
              f"{'; ' + notes if notes else ''}", flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=130, help="no new fault begins after it")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=20, help="arrivals a second")
    parser.add_argument("--faults", type=lambda text: text.split(","), help="only these, in their order by the seed")
    parser.add_argument("--out", type=pathlib.Path, default=report.ROOT / "build" / "chaos")
    parser.add_argument("--list", action="store_true", help="name the faults")
    return parser.parse_args()


def main():
    arguments = parse()
    if arguments.list:
        return print("\n".join(itertools.chain(faults.ANYWHERE, faults.NETWORK, faults.DISK)))
    links, reason = network.make(ALL)
    if reason:
        print(f"no network namespaces ({reason}): on loopback, without {', '.join(faults.NETWORK)}")
    with Site(links) as site:
        run = Run(arguments, site)
        trouble = run.go()
        if trouble or not run.findings.good:
            site.print_logs()
    if trouble:
        print(f"FAILED: {trouble}")
    print(f"replay with: {sys.argv[0]} --seed {arguments.seed} --seconds {arguments.seconds:g}")
    return 0 if run.findings.good and not trouble else 1


if __name__ == "__main__":
    sys.exit(main())
