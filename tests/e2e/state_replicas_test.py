#!/usr/bin/python3
"""States and sequences with copies on another node (--state-replicas): kill -9 of their home, in the middle of requests, takes
nothing that was acknowledged."""
import shutil
import threading

import numpy as np

from harness import E2eTest, eventually, main
from harness.networks import accumulate
from harness.shell import Shell

X = np.zeros((1, 256), np.float32)
X[0, 0] = 1
NAMES = ("node-0", "node-1", "node-2")


class StateReplicas(E2eTest):
    def setUp(self):
        super().setUp()
        self.manager = self.start("manager", "manager", host_id="host-manager", member_lease="2s")
        self.address = self.manager.address("manager")
        self.gateway = self.start("gateway", "gateway", manager=self.address, host_id="host-gateway")
        self.nodes = {name: self.start_node(name) for name in NAMES}
        self.gateway.wait_serving(gpus=0)
        self.http = self.gateway.http
        self.shell = Shell(self.address, self.directory)
        self.http.deploy("sum", accumulate(), "?state=s%3Dt&state_replicas=1").good()
        self.counts = {}

    def start_node(self, name):
        # Each is on a host of its own: nothing of the one is mapped by the other.
        return self.start(name, "node", manager=self.address, host_id=f"host-{name}", gpu_memory="4MiB")

    def add(self, sequence, start=False):
        """One more run. A run whose answer was lost may count, so the count may leave some out; it never goes back."""
        answers = []
        parameters = {"sequence_id": sequence, "sequence_start": start} if sequence else {}

        def answered():
            answers.append(self.http.ask("sum", {"x": X}, parameters))
            return answers[-1].code == 200
        eventually(answered, "the function is served", seconds=60)
        outputs = {output["name"]: output["data"] for output in answers[-1].json["outputs"]}
        count = outputs["y"][0] / 2
        self.assertGreater(count, self.counts.get(sequence, 0))
        self.counts[sequence] = count

    def placed(self):
        """The home, and the nodes in step."""
        function = self.http.function("sum")
        replicas = function.get("state_replicas", [])
        return function.get("state_home"), [one["node"] for one in replicas if one.get("in_step")]

    def in_step(self):
        eventually(lambda: len(self.placed()[1]) == 1, "a node is in step", seconds=40)
        return self.placed()

    def kinds(self):
        return [event["kind"] for event in self.shell.json("events", "--kind", "all", "--limit", 0)["events"]]

    def test_the_home_is_killed_in_the_middle_of_requests(self):
        self.add("chat", start=True)
        stop = threading.Event()
        failed = []

        def work(sequence):
            try:
                while not stop.is_set():
                    self.add(sequence)
            except BaseException as error:  # told by the test
                failed.append(error)
        workers = [threading.Thread(target=work, args=(sequence,)) for sequence in ("", "chat")]
        for worker in workers:
            worker.start()
        try:
            for _ in range(2):
                home, (replica,) = self.in_step()
                before = dict(self.counts)
                self.nodes[home].kill()
                eventually(lambda: self.placed()[0] == replica, "the other node is the home", seconds=40)
                eventually(lambda: all(self.counts[name] > before[name] + 3 for name in before), "it serves", seconds=40)
                self.nodes[home] = self.start_node(home)
        finally:
            stop.set()
            for worker in workers:
                worker.join()
        self.assertEqual(failed, [])
        self.assertEqual(self.kinds().count("state-restored"), 2)
        self.assertNotIn("state-damaged", self.kinds())

    def test_a_home_that_drains_leaves_them_to_the_node_in_step(self):
        self.add("chat", start=True)
        self.add("")
        home, (replica,) = self.in_step()
        self.shell.run("node", "drain", home)
        eventually(lambda: self.placed()[0] == replica, "the node in step is the home")
        self.add("chat")
        self.add("")
        self.assertEqual(self.kinds().count("state-moved"), 1)

    def test_a_home_that_comes_back_with_an_empty_disk_is_replaced(self):
        self.add("chat", start=True)
        self.add("")
        home, (replica,) = self.in_step()
        self.nodes[home].kill()
        shutil.rmtree(self.nodes[home].directory / "data")
        self.nodes[home] = self.start_node(home)
        eventually(lambda: self.placed()[0] == replica, "the node in step is the home")
        self.add("chat")
        self.add("")
        self.in_step()

    def test_a_replica_is_killed_and_replaced(self):
        self.add("")
        home, (replica,) = self.in_step()
        self.nodes[replica].kill()
        for _ in range(5):
            self.add("")
        eventually(lambda: self.placed()[1] not in ([], [replica]), "another node is in step", seconds=40)
        shown = self.shell.text("function", "show", "sum")
        self.assertRegex(shown, f"state on +{home}")
        self.assertRegex(shown, r"replica on node-\d \(in step\)")

    def test_what_is_refused(self):
        for query, part in (("?state_replicas=1", "keeps no state"), ("?state=s%3Dt&state_replicas=4", "from 0 to 3")):
            answer = self.http.deploy("other", accumulate(), query)
            self.assertEqual(answer.code, 400)
            self.assertIn(part, answer.error)


if __name__ == "__main__":
    main()
