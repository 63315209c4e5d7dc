#!/usr/bin/python3
"""States and sequences that move to another node when theirs drains: the counts go on without a gap, whatever is killed in
between."""
import threading

import numpy as np

from harness import E2eTest, eventually, main
from harness.networks import accumulate
from harness.shell import Shell

X = np.zeros((1, 256), np.float32)
X[0, 0] = 1
NUMBERS = np.arange(1, 1025)
NOT_FOUND = 3  # the shell's exit code
SEQUENCES = ("left", "right")


class StateMoves(E2eTest):
    def setUp(self):
        super().setUp()
        self.start_manager()
        self.gateway = self.start("gateway", "gateway", manager=self.address, host_id="host-gateway")
        self.nodes = {name: self.start_node(name) for name in ("node-0", "node-1")}
        self.gateway.wait_serving(gpus=0)
        self.http = self.gateway.http
        self.shell = Shell(self.address, self.directory)
        self.http.deploy("sum", accumulate(), "?state=s%3Dt").good()
        self.counts = {"": 0}
        for _ in range(3):
            self.add("")
        for sequence in SEQUENCES:
            self.add(sequence, start=True)
        self.add("left")

    def start_manager(self, **options):
        self.manager = self.start("manager", "manager", host_id="host-manager", **options)
        self.address = self.manager.address("manager")

    def start_node(self, name):
        # Each is on a host of its own: nothing of the one is mapped by the other.
        return self.start(name, "node", manager=self.address, host_id=f"host-{name}", gpu_memory="4MiB")

    def ask(self, sequence, start):
        parameters = {"sequence_id": sequence, "sequence_start": start} if sequence else {}
        return self.http.ask("sum", {"x": X}, parameters)

    def add(self, sequence, start=False):
        """One more run; its answer is twice the count, and a refusal counts nothing."""
        answers = []

        def answered():
            answers.append(self.ask(sequence, start))
            return answers[-1].code == 200
        eventually(answered, "the function is served", seconds=40)
        self.counts[sequence] = 1 if start else self.counts[sequence] + 1
        outputs = {output["name"]: output["data"] for output in answers[-1].json["outputs"]}
        np.testing.assert_array_equal(outputs["y"], 2 * self.counts[sequence] * NUMBERS)

    def add_all(self):
        for sequence in ("", *SEQUENCES):
            self.add(sequence)

    def home(self):
        homes = []

        def adopted():
            homes[:] = self.http.function("sum").get("adopted_by", [])
            return len(homes) == 1
        eventually(adopted, "one node has the model")
        return homes[0]

    def files(self, name):
        return sorted(path.name for path in (self.nodes[name].directory / "data" / "states").glob("*.state"))

    def drain(self, name, *undo):
        self.shell.run("node", "drain", name, *undo)

    def test_a_drain_takes_them_along(self):
        home = self.home()
        other = next(name for name in self.nodes if name != home)
        self.assertEqual(len(self.files(home)), 3)
        stop = threading.Event()
        failed = []

        def work():
            try:
                while not stop.is_set():
                    self.add_all()
            except BaseException as error:  # told by the test
                failed.append(error)
        worker = threading.Thread(target=work)
        worker.start()
        try:
            for _ in range(2):
                self.drain(home)
                eventually(lambda: self.adopted_by() == [other], "it has moved")
                eventually(lambda: self.files(home) == [], "the drained node has nothing of it")
                self.assertEqual(len(self.files(other)), 3)
                self.drain(home, "--undo")
                home, other = other, home
        finally:
            stop.set()
            worker.join()
        self.assertEqual(failed, [])
        self.add_all()
        kinds = [event["kind"] for event in self.shell.json("events", "--kind", "all", "--limit", 0)["events"]]
        self.assertEqual(kinds.count("state-moved"), 2)
        self.assertNotIn("state-damaged", kinds)

    def test_an_operator_moves_them(self):
        home = self.home()
        other = next(name for name in self.nodes if name != home)
        self.assertIn(f"are on node {other} now", self.shell.text("function", "move", "sum", other))
        self.add_all()
        self.assertEqual(self.home(), other)
        self.assertIn("there is no node 'node-9'", self.shell.error("function", "move", "sum", "node-9", code=NOT_FOUND))
        self.add_all()

    def adopted_by(self):
        return self.http.function("sum").get("adopted_by", [])

    def killed(self, who):
        """Something is killed at three moments of a move, and comes back: the move ends all the same."""
        moments = (lambda home, other: True, lambda home, other: self.adopted_by() != [home],
                   lambda home, other: self.files(other) != [])
        for moment in moments:
            home = self.home()
            other = next(name for name in self.nodes if name != home)
            self.drain(home)
            eventually(lambda: moment(home, other), "the move has begun")
            if who == "manager":
                self.manager.kill()
                self.start_manager(manager=self.address)
            else:
                name = home if who == "old" else other
                self.nodes[name].kill()
                self.nodes[name] = self.start_node(name)
            self.add_all()
            self.assertEqual(self.home(), other)
            self.drain(home, "--undo")

    def test_the_old_home_is_killed(self):
        self.killed("old")

    def test_the_new_home_is_killed(self):
        self.killed("new")

    def test_the_manager_is_killed(self):
        self.killed("manager")


if __name__ == "__main__":
    main()
