#!/usr/bin/python3
"""`troupe store`, and a manager whose disk was damaged: it refuses to start, names the damage, and serves
after a restore; no acknowledged record is dropped silently."""
import json
import re
import shutil
import signal
import subprocess

import numpy as np

from harness import E2eTest, Load, StartFailed, eventually, main
from harness.daemon import BIN
from harness.networks import scale

X = {"x": np.ones((1, 4), np.float32)}


def store(*words, code=0):
    """The finished `troupe store`; AssertionError when it ends with another exit code."""
    done = subprocess.run([BIN / "troupe", "store", *map(str, words)], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, f"troupe store {words}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


class Store(E2eTest):
    def setUp(self):
        super().setUp()
        self.data = self.directory / "one" / "data"
        self.metadata = self.data / "metadata"

    def begin(self, **options):
        return self.start("one", "all", **options).wait_serving()

    def deployed(self, *factors):
        """A stopped manager with these functions: killed, so that its log is as the last commit left it."""
        daemon = self.begin()
        for factor in factors:
            daemon.http.deploy(f"times-{factor}", scale(factor)).good()
        self.assertEqual(daemon.http.infer(f"times-{factors[0]}", X)["y"], [float(factors[0])] * 4)
        daemon.kill()
        eventually(lambda: not daemon.workers(), "the workers end without their daemon")

    def log(self):
        """The largest of the database's logs."""
        return max(self.metadata.glob("db/*.log"), key=lambda path: len(path.read_bytes().rstrip(b"\0")))

    def records(self):
        """The records of the log, without the room for the next record."""
        return self.log().read_bytes().rstrip(b"\0")

    def names(self, daemon):
        return {entry["record"]["key"]["name"] for entry in daemon.http.get("/v2/troupe/functions").good().json}

    def refused(self):
        """The error of a daemon that does not start."""
        with self.assertRaises(StartFailed) as start:
            self.begin()
        self.assertEqual(start.exception.code, 2)
        return start.exception.errors

    def test_a_start_says_what_it_found(self):
        self.deployed(2, 3)
        daemon = self.begin()
        line = next(line for line in daemon.tail(200).splitlines() if "recovered in" in line and " 2 functions" in line)
        self.assertRegex(line, r"recovered in .*: 2 functions, 0 workflows, 0 runs \(0 unfinished\); metadata of format 2: "
                               r"changes up to number \d+, the mark at \d+, nothing dropped, opened in ")
        self.assertEqual(self.names(daemon), {"times-2", "times-3"})

    def test_backup_and_restore(self):
        self.deployed(2)
        backup = self.directory / "backup"
        self.assertRegex(store("backup", "--data", self.data, "--to", backup).stdout,
                         r"^backup of cluster \w+, changes up to number \d+: \d+ files, .* in ")
        self.assertIn("is there already", store("backup", "--data", self.data, "--to", backup, code=1).stderr)
        self.assertIn("whole: changes up to number", store("check", "--data", backup).stdout)
        daemon = self.begin()
        daemon.http.deploy("times-3", scale(3)).good()
        told = store("restore", "--from", backup, "--data", self.data, code=1).stderr
        self.assertIn(f"is locked by pid {daemon.process.pid}", told)
        daemon.kill()
        eventually(lambda: not daemon.workers(), "the workers end without their daemon")
        done = store("restore", "--from", backup, "--data", self.data)
        self.assertIn("what was there before is in", done.stdout)
        daemon = self.begin()
        self.assertEqual(self.names(daemon), {"times-2"})
        self.assertEqual(daemon.http.infer("times-2", X)["y"], [2.0] * 4)
        daemon.http.deploy("times-5", scale(5)).good()
        self.assertEqual(daemon.http.infer("times-5", X)["y"], [5.0] * 4)

    def test_a_running_manager_makes_a_backup(self):
        daemon = self.begin()
        daemon.http.deploy("times-2", scale(2)).good()
        load = Load(lambda: self.assertEqual(daemon.http.infer("times-2", X)["y"], [2.0] * 4), threads=1)
        told = store("backup", "--data", self.data, "--to", self.directory / "b", code=1).stderr
        self.assertIn(f"is locked by pid {daemon.process.pid}", told)
        self.assertIn("when it gets SIGUSR1", told)
        daemon.process.send_signal(signal.SIGUSR1)
        eventually(lambda: "backup of cluster" in daemon.tail(200), "the backup was made")
        daemon.http.deploy("times-3", scale(3)).good()
        load.stop()
        backup, = (self.data / "backups").iterdir()
        self.assertIn("whole: ", store("check", "--data", backup).stdout)
        store("restore", "--from", backup, "--data", self.directory / "other" / "data")
        other = self.start("other", "all").wait_serving()
        self.assertEqual(self.names(other), {"times-2"})
        self.assertEqual(other.http.infer("times-2", X)["y"], [2.0] * 4)

    def test_a_damaged_record_refuses_until_it_is_restored(self):
        self.deployed(2, 3)
        backup = self.directory / "backup"
        store("backup", "--data", self.data, "--to", backup)
        daemon = self.begin()
        for factor in (5, 7):
            daemon.http.deploy(f"times-{factor}", scale(factor)).good()
        daemon.kill()
        eventually(lambda: not daemon.workers(), "the workers end without their daemon")
        log = self.log()
        content = bytearray(log.read_bytes())
        content[len(self.records()) // 2] ^= 1
        log.write_bytes(content)
        told = self.refused()
        self.assertRegex(told, rf"are not all there: {log.name}, byte \d+: .* were acknowledged")
        self.assertIn("troupe store restore --from BACKUP --data DATA", told)
        self.assertEqual(log.read_bytes(), content, "nothing was changed")
        check = store("check", "--data", self.data, code=1)
        self.assertIn("not whole", check.stdout)
        self.assertIn(log.name, check.stderr)
        store("restore", "--from", backup, "--data", self.data)
        self.assertEqual(self.names(self.begin()), {"times-2", "times-3"})

    def test_a_log_that_lost_its_end_refuses(self):
        self.deployed(2, 3)
        log = self.log()
        log.write_bytes(self.records()[:-100])
        self.assertRegex(self.refused(), r"were acknowledged \(MARK\), and they end with number \d+")

    def test_a_torn_record_that_was_never_acknowledged_is_dropped_and_said(self):
        self.deployed(2, 3)
        log = self.log()
        records = self.records()
        log.write_bytes(records + records[-60:])  # as a write that the crash cut short
        self.assertIn("is torn (60 bytes) and was never acknowledged", store("check", "--data", self.data).stdout)
        daemon = self.begin()
        self.assertIn(f"a torn last record of 60 bytes in {log.name} dropped (it was never acknowledged)", daemon.tail(200))
        self.assertEqual(self.names(daemon), {"times-2", "times-3"})
        self.assertEqual(daemon.http.infer("times-3", X)["y"], [3.0] * 4)

    def test_another_format_and_another_cluster(self):
        self.deployed(2)
        backup = self.directory / "backup"
        store("backup", "--data", self.data, "--to", backup)
        (self.metadata / "FORMAT").write_text("troupe-metadata 9\n")
        self.assertIn("has metadata format 9, this build reads up to 2: use a newer release", self.refused())
        self.assertIn("use a newer release", store("check", "--data", self.data, code=1).stderr)
        shutil.rmtree(self.data)  # its node's file `cluster` too: a member of another cluster would be refused
        self.begin().kill()  # the manager of another cluster
        told = store("restore", "--from", backup, "--data", self.data, code=1).stderr
        self.assertRegex(told, "belongs to cluster .*, and the backup .* to cluster .*--other-cluster")
        store("restore", "--from", backup, "--data", self.data, "--other-cluster")

    def test_dump(self):
        self.deployed(2)
        lines = [json.loads(line) for line in store("dump", "--data", self.data).stdout.splitlines()]
        functions = [line for line in lines if line["table"] == "functions"]
        self.assertEqual([line["key"] for line in functions], ["times-2/1"])
        self.assertTrue(functions[0]["value"]["loaded"])
        self.assertRegex(functions[0]["value"]["model_digest"], "^[0-9a-f]{64}$")
        only = store("dump", "--data", self.data, "--table", "settings", "--prefix", "clus").stdout
        self.assertTrue(re.fullmatch(r'\{"table":"settings","key":"cluster","value":"\w+"\}\n', only), only)

    def test_what_it_is_told_wrongly(self):
        nowhere = self.directory / "nowhere"
        self.assertIn("no metadata of Troupe's", store("check", "--data", nowhere, code=3).stderr)
        self.assertIn("no metadata of Troupe's", store("backup", "--data", nowhere, "--to", nowhere / "b", code=3).stderr)
        self.assertFalse(nowhere.exists(), "nothing was made")
        self.assertIn("it is not a backup", store("restore", "--from", nowhere, "--data", nowhere / "x", code=1).stderr)
        store("polish", code=2)
        store("check", code=2)
        store(code=2)
        self.assertIn("--data", store("restore", "--help").stdout)
        self.deployed(2)
        self.assertIn("there is no table 'x': settings, functions",
                      store("dump", "--data", self.data, "--table", "x", code=2).stderr)


if __name__ == "__main__":
    main()
