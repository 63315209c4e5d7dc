#!/usr/bin/python3
"""GPU workers that are killed or hang while requests run: the requests are run again, and other requests are not affected."""
import os
import signal

import numpy as np

from harness import E2eTest, Load, eventually, main, processes
from harness.networks import scale

X = np.arange(8, dtype=np.float32).reshape(2, 4)


class TwoWorkers(E2eTest):
    HANG = "1m"  # longer than a busy machine keeps a healthy worker waiting

    def setUp(self):
        super().setUp()
        self.daemon = self.start("one", "all", gpus=2, hang=self.HANG).wait_serving(gpus=2)
        self.http = self.daemon.http
        for factor in (2, 3):
            self.http.deploy(f"times-{factor}", scale(factor)).good()

    def ask_both(self):
        for factor in (2, 3):
            self.assertEqual(self.http.infer(f"times-{factor}", {"x": X})["y"], (factor * X).reshape(-1).tolist())

    def resident(self):
        return set(self.http.function("times-2").get("resident_on", []))

    def replaced(self, old):
        """The new workers, once the killed ones have successors that are up."""
        def up():
            metrics = self.daemon.operations.get("/metrics").body.decode()
            workers = self.daemon.workers()
            return (len(workers) == 2 and not set(old) & set(workers.values()) and
                    metrics.count("troupe_gpu_up{") == sum(line.startswith("troupe_gpu_up{") and line.endswith(" 1")
                                                            for line in metrics.splitlines())) and workers
        return eventually(up, f"workers {old} are replaced")


class WorkerDeath(TwoWorkers):
    def test_killed_under_load(self):
        load = Load(self.ask_both)
        load.wait(10)
        first = self.daemon.workers()
        os.kill(first[0], signal.SIGKILL)
        load.wait(10)
        self.replaced([first[0]])
        second = self.daemon.workers()
        self.assertEqual(second[1], first[1], "the other worker is left alone")
        processes.kill(*second.values())
        load.wait(10)
        self.replaced(list(second.values()))
        load.wait(10)
        load.stop()
        self.assertEqual(self.daemon.process.poll(), None)

    def test_killed_while_idle(self):
        self.ask_both()
        before = self.daemon.workers()
        processes.kill(*before.values())
        self.replaced(list(before.values()))
        self.ask_both()

    def test_its_models_come_back(self):
        self.ask_both()
        before = eventually(self.resident, "the model is on a GPU")
        gpu = int(next(iter(before)).rpartition("/")[2])
        pid = self.daemon.workers()[gpu]
        os.kill(pid, signal.SIGKILL)
        self.replaced([pid])
        self.ask_both()
        eventually(self.resident, "the model is on a GPU again")


class WorkerHang(TwoWorkers):
    HANG = "2s"

    def test_hanging_under_load(self):
        load = Load(self.ask_both)
        load.wait(10)
        stopped = self.daemon.workers()
        for pid in stopped.values():
            os.kill(pid, signal.SIGSTOP)  # a stopped worker lives and answers nothing, as on a GPU that has hung
        load.wait(6)
        self.replaced(list(stopped.values()))
        load.stop()


if __name__ == "__main__":
    main()
