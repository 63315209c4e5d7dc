#!/usr/bin/python3
"""The power fails while a daemon acknowledges deployments, removals, runs and states: nothing that it acknowledged is lost. Its
disk is a real file system on a file. What the kernel has not written to the file when everything is killed is gone."""
import base64
import http.client
import itertools
import os
import subprocess
import threading
import unittest

import numpy as np

from harness import E2eTest, eventually, main
from harness.networks import scale, tally
from harness.workflows import chain

X = np.ones((1, 4), np.float32)
ONE = np.ones((1, 1), np.float32)
ROUNDS = 3
ENDED = (OSError, http.client.HTTPException)


class Disk:
    """A file system whose power can fail. The kernel writes nothing by itself for ten minutes, nor for a file that replaces another
    one: only what was synced is there."""

    def __init__(self, directory):
        self.directory, self.place, self.number = directory, directory / "disk", 0
        self.place.mkdir()
        image = self._image()
        with image.open("wb") as file:
            file.truncate(192 << 20)
        self._run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", image)
        self._mount(image)

    def _image(self):
        return self.directory / f"image-{self.number}"

    @staticmethod
    def _run(*words):
        done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "PATH": os.environ["PATH"] + ":/sbin:/usr/sbin"})
        if done.returncode:
            raise OSError(f"{words}: {done.stderr.strip()}")

    def _mount(self, image):
        self._run("mount", "-o", "loop,commit=600,noauto_da_alloc", image, self.place)

    def close(self):
        self._run("umount", "-l", self.place)

    def fail(self):
        """The disk as it is after a power failure. No process has a file of it open any more."""
        before = self._image()
        self.number += 1
        self._run("cp", "--sparse=always", before, self._image())
        self.close()
        before.unlink()
        self._mount(self._image())


def said(answer):
    """Whether it is an acknowledgement; an error that no load excuses is raised."""
    return answer.code != 503 and bool(answer.good())


class Acknowledged:
    """What the clients were told has succeeded. `open`: what was asked for and not answered when the power failed."""

    def __init__(self):
        self.deployed, self.removed, self.runs = {}, set(), set()
        self.open, self.added, self.asked = set(), 0, 0
        self.wrong = []


@unittest.skipIf(os.geteuid() != 0, "only root may mount a file system")
class PowerFailure(E2eTest):
    def setUp(self):
        super().setUp()
        try:
            self.disk = Disk(self.directory)
        except OSError as refused:
            self.skipTest(f"no file system can be mounted here: {refused}")
        # Cleanups run in reverse: the daemon has to close its files before the disk goes.
        self.addCleanup(self.disk.close)
        self.addCleanup(lambda: [daemon.kill_node() for daemon in self.daemons])
        self.told, self.numbers, self.boots = Acknowledged(), itertools.count(1), 0

    def begin(self):
        """A start after a power failure: what lay in memory is gone, the sockets' directory, too."""
        self.boots += 1
        self.daemon = self.start("one", "all", data=self.disk.place / "data", run=self.directory / f"run-{self.boots}")
        return self.daemon.wait_serving().http

    # --- clients, each until the power fails; a busy machine may refuse something with 503, which then counts for nothing ---

    def deploying(self, http):
        for number in self.numbers:
            name = f"times-{number}"
            self.told.open.add(name)
            if not said(http.deploy(name, scale(number))):
                continue
            self.told.deployed[name] = number
            if number % 3 == 0:
                self.told.deployed.pop(name)
                if not said(http.remove(name)):
                    continue
                self.told.removed.add(name)
            self.told.open.discard(name)

    def running(self, http):
        for number in self.numbers:
            answer = http.ask("chain", {"x": number * X})
            if not said(answer):
                continue
            if answer.json["outputs"][0]["data"] != [6.0 * number] * 4:
                self.told.wrong.append(f"chain of {number}: {answer.body}")
            self.told.runs.add(number)

    def adding(self, http):
        while True:
            self.told.asked += 1
            answer = http.ask("tally", {"x": ONE})
            if not said(answer):
                continue
            counted = answer.json["outputs"][0]["data"][0] / 2
            if not self.told.added < counted <= self.told.asked:
                self.told.wrong.append(f"the state counts {counted} of {self.told.added} to {self.told.asked} runs")
            self.told.added = counted

    def until_dark(self, http, enough):
        """Everything is asked for at once, and the power fails in the middle, when `enough` has come to be acknowledged."""
        begun = len(self.told.runs) + len(self.told.deployed)
        troubles = []

        def client(work):
            try:
                work(http)
            except ENDED as gone:
                if self.daemon.process.poll() is None and not self.dark:
                    troubles.append(f"{work.__name__}: {gone}")
            except Exception as failed:
                troubles.append(f"{work.__name__}: {failed}")
        self.dark = False
        works = (self.deploying, self.deploying, self.running, self.running, self.adding)
        threads = [threading.Thread(target=client, args=(work,), daemon=True) for work in works]
        for thread in threads:
            thread.start()
        eventually(lambda: troubles or len(self.told.runs) + len(self.told.deployed) >= begun + enough, "it is acknowledged")
        unsynced = self.disk.place / f"unsynced-{self.boots}"
        unsynced.write_text("not synced, so not promised")
        self.dark = True
        self.daemon.kill_node()
        self.disk.fail()
        for thread in threads:
            thread.join(60)
            self.assertFalse(thread.is_alive(), "a client hangs")
        self.assertEqual(troubles, [])
        # Its name may be there: it is synced with those of other files.
        left = unsynced.read_text() if unsynced.exists() else ""
        self.assertEqual(left, "", "what was not synced is there: this was no power failure")

    @staticmethod
    def value(run):
        """What the run was asked for, by its output in the run log."""
        return round(float(np.frombuffer(base64.b64decode(run["outputs"][0]["inlined"]), np.float32)[0]) / 6)

    def answer(self, http, name, x):
        """The output, when there is one."""
        def served():
            self.told.asked += name == "tally"
            answer = http.ask(name, {"x": x})
            return said(answer) and answer
        return eventually(served, f"{name} is served").json["outputs"][0]["data"]

    def check(self, http):
        self.assertEqual(self.told.wrong, [])
        listed = [entry["record"]["key"]["name"] for entry in http.get("/v2/troupe/functions").good().json]
        self.assertEqual(len(listed), len(set(listed)), "each was deployed once")
        self.assertEqual(set(self.told.deployed) - set(listed), set(), "acknowledged and lost")
        self.assertEqual(self.told.removed & set(listed), set(), "removed and there again")
        self.assertLessEqual(set(listed), {*self.told.deployed, *self.told.open, "twice", "thrice", "tally"}, "these were not asked for")
        for name, factor in self.told.deployed.items():
            self.assertEqual(self.answer(http, name, X), [float(factor)] * 4, name)
        runs = [self.value(http.get(f"/v2/troupe/runs/{entry['start']['run']}").good().json)
                for entry in http.get("/v2/troupe/runs?workflow=chain").good().json if entry.get("state") == "RUN_SUCCEEDED"]
        self.assertEqual(self.told.runs - set(runs), set(), "acknowledged and not in the run log")
        self.assertEqual(len(runs), len(set(runs)), "each run was asked for once")
        counted = self.answer(http, "tally", ONE)[0] / 2
        self.assertGreater(counted, self.told.added, "a run that was acknowledged does not count")
        self.assertLessEqual(counted, self.told.asked, "a run counts twice")
        self.told.added = counted

    def test_nothing_acknowledged_is_lost(self):
        http = self.begin()
        for name, factor in (("twice", 2), ("thrice", 3)):
            http.deploy(name, scale(factor)).good()
        http.deploy("tally", tally(), "?state=s%3Dt").good()
        http.call("POST", "/v2/troupe/workflows", chain("chain", ["twice", "thrice"], 4)).good()
        eventually(lambda: http.get("/v2/models/chain/ready").code == 200, "the workflow is ready")
        for round in range(ROUNDS):
            self.until_dark(http, 30 + 17 * round)
            http = self.begin()
            eventually(lambda: http.get("/v2/models/chain/ready").code == 200, "the workflow is there again")
            eventually(lambda: http.get("/v2/models/tally/ready").code == 200, "the state is there again")
            self.check(http)

    def test_a_file_that_was_synced_stays(self):
        """The disk by itself: what it does is what a power failure does, and no more."""
        for name in ("synced", "unsynced"):
            with (self.disk.place / name).open("w") as file:
                file.write(name)
                if name == "synced":
                    file.flush()
                    os.fsync(file.fileno())
        self.disk.fail()
        self.assertEqual((self.disk.place / "synced").read_text(), "synced")
        self.assertFalse((self.disk.place / "unsynced").exists())


if __name__ == "__main__":
    main()
