"""Compares what was acknowledged with what is there, by the clients' history and the cluster's answers alone."""
import base64
import collections

import numpy as np

from harness import HttpError, eventually

from .history import ANSWERED, REFUSED, UNKNOWN, WRONG
from .load import SMALL, TALLY, WIDE, WORKFLOW_FACTOR, Caller
from .site import GATEWAYS, PATIENCE


class Findings:
    """The violations of each sort as texts; the cluster is good when all lists but `left` are empty."""

    def __init__(self):
        self.lost, self.duplicated, self.wrong = [], [], []

    def print(self):
        for what in ("lost", "duplicated", "wrong"):
            for text in getattr(self, what)[:20]:
                print(f"{what}: {text}")

    @property
    def good(self):
        return not (self.lost or self.duplicated or self.wrong)


def wait_served(site, history):
    """Waits until each gateway answers requests for each function and for the workflow."""
    caller = Caller(site, history)
    for gateway in GATEWAYS:
        client = site.http(gateway)
        for name in (*SMALL, WIDE, TALLY, "chain"):
            def ready(client=client, name=name):
                try:
                    return client.call("GET", f"/v2/models/{name}/ready", timeout=5).code == 200
                except OSError:
                    return False
            eventually(ready, f"{name} is ready at {gateway}: no return to health", PATIENCE)
    for name, factor in SMALL.items():
        assert caller.small(name, factor, 5).outcome != UNKNOWN, f"{name} is not answered: no return to health"


class Runs:
    """Looks at the runs that ended since the last look. Each run's input is a number that no other run has."""

    def __init__(self, site, findings):
        self.site, self.findings = site, findings
        self.seen = set()
        self.by_value = collections.Counter()  # runs that succeeded
        self.running = set()

    def look(self):
        """The answer of any gateway; the manager has to be alive."""
        client = self.site.http(GATEWAYS[0])
        listed = client.get("/v2/troupe/runs?workflow=chain").good().json
        self.running.clear()
        for entry in listed:
            run, state = entry["start"]["run"], entry.get("state", "RUN_RUNNING")
            if state == "RUN_RUNNING":
                self.running.add(run)
            elif run not in self.seen:
                self.seen.add(run)
                self._ended(run, state, client.get(f"/v2/troupe/runs/{run}").good().json)

    def _ended(self, run, state, record):
        steps = collections.Counter(step["step"] for step in record.get("steps", []))
        for step, times in steps.items():
            if times > 1:
                self.findings.duplicated.append(f"step {step} of run {run} was committed {times} times")
        if state == "RUN_SUCCEEDED":
            self.by_value[round(first_value(record) / WORKFLOW_FACTOR)] += 1

    def check(self, history):
        for operation in history.operations("run"):
            there = self.by_value[operation.key]
            if operation.outcome == ANSWERED and there == 0:
                self.findings.lost.append(f"the run of {operation.key} was answered and is not in the run log")
            if there > 1:
                self.findings.duplicated.append(f"the run of {operation.key}, submitted once, is there {there} times")


def first_value(record):
    """The value of the run's output, as the run log keeps it."""
    return float(np.frombuffer(base64.b64decode(record["outputs"][0]["inlined"]), np.float32)[0])


def check_functions(site, history, findings):
    """Acknowledged deployments are there and serve, acknowledged removals are not."""
    outcomes = collections.defaultdict(dict)
    for operation in history.operations("deploy", "remove"):
        outcomes[operation.key][operation.kind] = operation.outcome
    client, caller = site.http(GATEWAYS[0]), Caller(site, history)
    listed = collections.Counter(entry["record"]["key"]["name"]
                                 for entry in client.get("/v2/troupe/functions").good().json)
    for name in (*SMALL, WIDE, TALLY):
        if not listed[name]:
            findings.lost.append(f"{name} was acknowledged before all faults and is not there")
    for name, done in outcomes.items():
        deployed, removed = done.get("deploy"), done.get("remove")
        if listed[name] > 1:
            findings.duplicated.append(f"{name}, deployed once, has {listed[name]} versions")
        if removed == ANSWERED and listed[name]:
            findings.lost.append(f"the removal of {name} was acknowledged and it is there")
        if deployed == ANSWERED and removed is None:
            if not listed[name]:
                findings.lost.append(f"the deployment of {name} was acknowledged and it is not there")
            elif caller.small(name, int(name.rpartition("-")[2]) + 100, 3).outcome == UNKNOWN:
                findings.lost.append(f"{name} was acknowledged and is not served")
        if deployed == REFUSED and listed[name]:
            findings.wrong.append(f"the deployment of {name} was refused and it is there")


def faults_between(history, begin, end):
    """The kinds of the faults from which the cluster was not known to be well again in all of this time."""
    begins = [(at, text) for at, kind, _, text in history.marks() if kind == "kind"]
    ends = [*(at for at, _ in begins[1:]), float("inf")]
    return {text for (at, text), until in zip(begins, ends) if at <= end and until >= begin}


def check_tally(history, tally, exact, findings):
    """Each acknowledged run has counted; where only faults of `exact` were done, once, and no other has."""
    if tally.add().outcome != ANSWERED:
        findings.lost.append("the state is not served")
    for before, after in zip(tally.answers, tally.answers[1:]):
        if after.count <= before.count:
            findings.lost.append(f"a run was acknowledged as number {after.count}, behind number {before.count}")
        extra = after.count - before.count - 1 - after.doubts
        if extra > 0 and faults_between(history, before.at, after.at) <= exact:
            findings.duplicated.append(f"{extra} runs that were not acknowledged count, before number {after.count}")


def check_answers(history, findings):
    for operation in history.operations():
        if operation.outcome == WRONG:
            findings.wrong.append(f"{operation.kind}: {operation.trouble}")


def unserved(history):
    """The requests that were tried for a minute and not answered."""
    return [operation for operation in history.operations("infer") if operation.outcome == UNKNOWN]


def final(site, history, runs, tally, exact, findings):
    try:
        runs.look()
        runs.check(history)
        check_functions(site, history, findings)
        check_tally(history, tally, exact, findings)
    except HttpError as error:
        findings.lost.append(f"the cluster does not say what it has: {error}")
    check_answers(history, findings)
