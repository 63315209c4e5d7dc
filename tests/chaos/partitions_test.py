#!/usr/bin/python3
"""What a part of a real cluster does that the manager cannot reach: a removed function, and a state whose copy becomes its home."""
import http.client
import itertools
import pathlib
import sys
import threading
import unittest

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

from harness import eventually  # noqa: E402
from harness.networks import scale, tally  # noqa: E402
from rig import network  # noqa: E402
from rig.site import ALL, GATEWAYS, MANAGER, NODES, Site  # noqa: E402

X = np.ones((1, 4), np.float32)
ONE = np.ones((1, 1), np.float32)
NETWORK, REASON = network.make(ALL)  # while there is one thread
SECOND = {"timeout": 1_000_000}      # microseconds


@unittest.skipIf(REASON, f"no network namespaces: {REASON}")
class Partitions(unittest.TestCase):
    def begin(self, **options):
        self.site = self.enterContext(Site(NETWORK, {key.replace("_", "-"): value for key, value in options.items()}))
        self.addCleanup(lambda: self._outcome.result.wasSuccessful() or self.site.print_logs())
        self.site.wait_members()
        self.near, self.far = map(self.site.http, GATEWAYS)

    def deploy(self, name, onnx, inputs, query=""):
        self.near.deploy(name, onnx, query).good()
        for gateway in (self.near, self.far):
            eventually(lambda: gateway.ask(name, inputs, SECOND).code == 200, f"{name} is served")

    def wait_well(self):
        NETWORK.heal()
        self.site.wait_members()

    # --- a function that is removed ---

    def test_a_gateway_that_is_cut_off_has_no_answer_of_a_removed_function(self):
        self.begin()
        self.deploy("gone", scale(5), {"x": X})
        self.deploy("stays", scale(6), {"x": X})
        NETWORK.partition(GATEWAYS[1], [MANAGER])
        self.near.remove("gone").good()
        self.assertEqual(self.near.ask("gone", {"x": X}).code, 404)

        def unheld():
            answer = self.far.ask("gone", {"x": X}, SECOND)
            return answer.code == 503 and "no node holds its model" in answer.error
        eventually(unheld, "the nodes have told the gateway that they do not hold it any more")
        self.assertEqual(self.far.infer("stays", {"x": X})["y"], [6.0] * 4)
        waiting = []
        thread = threading.Thread(target=lambda: waiting.append(self.far.ask("gone", {"x": X}, {"timeout": 60_000_000})))
        thread.start()
        self.wait_well()
        thread.join(120)
        self.assertEqual([answer.code for answer in waiting], [404], "the request that waited is told that it is removed")
        self.assertEqual(self.far.ask("gone", {"x": X}).code, 404)

    def test_a_gateway_and_its_nodes_answer_a_removed_function_for_their_lease(self):
        self.begin(member_lease="3s")
        self.deploy("gone", scale(5), {"x": X})
        for name in (GATEWAYS[1], *NODES):
            NETWORK.partition(name, [MANAGER])
        self.near.remove("gone").good()

        def over():  # until then it may be answered, since nothing there has heard of the removal
            answer = self.far.ask("gone", {"x": X}, SECOND)
            if answer.code == 200:
                self.assertEqual(answer.json["outputs"][0]["data"], [5.0] * 4)
            return answer.code == 503 and "longer than its lease of 3 s" in answer.error
        eventually(over, "the gateway's lease is over")
        for _ in range(20):
            self.assertTrue(over(), "it answers again")
        self.wait_well()
        eventually(lambda: self.far.ask("gone", {"x": X}, SECOND).code == 404, "the gateway hears that it is removed")
        self.assertEqual([self.far.ask("gone", {"x": X}, SECOND).code for _ in range(20)], [404] * 20)

    # --- a state with a copy ---

    def placed(self):
        """The home of the state, and the nodes in step."""
        function = self.near.function("tally")
        return function.get("state_home"), [one["node"] for one in function.get("state_replicas", []) if one.get("in_step")]

    def in_step(self):
        eventually(lambda: len(self.placed()[1]) == 1, "a node is in step")
        return self.placed()

    def test_a_home_that_is_cut_off_acknowledges_nothing_that_its_copy_does_not_have(self):
        """The old home and one gateway hear each other and every node, but not the manager; the other gateway hears it."""
        self.begin(member_lease="3s")
        self.deploy("tally", tally(), {"x": ONE}, "?state=s%3Dt&state_replicas=1")
        home, [replica] = self.in_step()
        counts, stop, troubles = {gateway: [] for gateway in GATEWAYS}, threading.Event(), []

        def add(gateway):
            for _ in itertools.takewhile(lambda _: not stop.is_set(), itertools.count()):
                try:
                    answer = self.site.http(gateway).ask("tally", {"x": ONE}, SECOND, timeout=20)
                except (OSError, http.client.HTTPException):
                    continue
                if answer.code == 200:
                    counts[gateway].append(answer.json["outputs"][0]["data"][0] / 2)
                elif answer.code != 503:
                    troubles.append(f"{gateway}: {answer.code} {answer.body[:200]!r}")
        threads = [threading.Thread(target=add, args=(gateway,), daemon=True) for gateway in GATEWAYS]
        for thread in threads:
            thread.start()
        try:
            eventually(lambda: all(counts.values()), "both gateways are answered")
            for name in (home, GATEWAYS[1]):
                NETWORK.partition(name, [MANAGER])
            eventually(lambda: self.placed()[0] == replica, "the node in step is the home")
            before = len(counts[GATEWAYS[0]])
            eventually(lambda: len(counts[GATEWAYS[0]]) > before + 10, "the state goes on there")
            self.wait_well()
            before = {gateway: len(counts[gateway]) for gateway in GATEWAYS}
            eventually(lambda: all(len(counts[gateway]) > before[gateway] + 10 for gateway in GATEWAYS), "both are answered again")
            self.assertEqual(self.in_step()[0], replica)
        finally:
            stop.set()
            for thread in threads:
                thread.join(60)
        self.assertEqual(troubles, [])
        everything = sorted(count for each in counts.values() for count in each)
        self.assertEqual(len(everything), len(set(everything)), "two runs were acknowledged with the same count: two owners")
        for gateway, each in counts.items():
            self.assertEqual(each, sorted(each), f"the state went back at {gateway}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
