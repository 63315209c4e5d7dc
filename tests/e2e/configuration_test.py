#!/usr/bin/python3
"""Errors that keep trouped from starting: it prints one line that says what to do, and its exit code is 2."""
import re
import socket
import subprocess

from harness import E2eTest, StartFailed, eventually, main, processes
from harness.client import Client
from harness.daemon import BIN


class Configuration(E2eTest):
    def refused(self, role, switches=(), directory="refused", **options):
        """The one line with which the daemon ends."""
        with self.assertRaises(StartFailed) as failed:
            self.start(directory, role, switches, **options)
        self.assertEqual(failed.exception.code, 2, failed.exception.errors)
        # Roles that started before the one that could not may have logged what they did.
        log = (self.directory / directory / "trouped.log").read_text().splitlines()
        lines = [line for line in log if not line.startswith("20")]
        self.assertEqual(len(lines), 1, log)
        self.assertTrue(lines[0].startswith("trouped: "), lines[0])
        return lines[0]

    def refused_file(self, text):
        path = self.directory / "troupe.yaml"
        path.write_text(text)
        done = subprocess.run([BIN / "trouped", "--config", path], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        return done.stderr

    def test_unknown_key_names_its_line_and_the_nearest_key(self):
        error = self.refused_file("role: all\n\n# memory of each\ngpu-memroy: 64MiB\n")
        self.assertIn("troupe.yaml:4:", error)
        self.assertIn("gpu-memroy", error)
        self.assertIn("did you mean 'gpu-memory'", error)

    def test_wrong_value_names_its_line_and_what_is_expected(self):
        error = self.refused_file("role: all\ndefault-deadline: soon\n")
        self.assertIn("troupe.yaml:2:", error)
        self.assertIn("'soon'", error)
        self.assertIn("100ms", error)

    def test_broken_yaml_names_its_line(self):
        self.assertIn("troupe.yaml:2:", self.refused_file("role: all\n@name: x\n"))

    def test_a_word_that_is_no_flag_is_named_with_what_may_be_meant(self):
        for words, said in ((["--gpu-memroy", "2"], "'--gpu-memroy' is not an option; did you mean '--gpu-memory'?"),
                            (["--gpu", "2"], "--gpu is an advanced option: say --set gpu=VALUE, or write it into the file's block "
                                             "'advanced'; did you mean '--gpus'?"),
                            (["--hang", "10s"], "--hang is an advanced option: say --set hang=VALUE"),
                            (["nodes"], "'nodes' is not an option"),
                            (["--set", "qwertz=1"], "--set qwertz: unknown key; trouped --help and --help-advanced list them")):
            done = subprocess.run([BIN / "trouped", "--role", "all", *words], capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
            self.assertIn(said, done.stderr)

    def test_missing_file_and_missing_role(self):
        done = subprocess.run([BIN / "trouped", "--config", "/nowhere/troupe.yaml"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("/nowhere/troupe.yaml", done.stderr)
        self.assertIn("--role", self.refused_file("data: /tmp\n"))

    def test_every_key_is_a_flag_and_every_flag_a_key(self):
        text = subprocess.run([BIN / "trouped", "--help"], capture_output=True, text=True, check=True).stdout
        flags = [line.split()[0] for line in text.splitlines() if line.strip().startswith("--")]
        others = ("--config", "--set", "--detach", "--check", "--version", "--help", "--help-advanced")
        keys = [flag.removeprefix("--") for flag in flags if flag not in others]
        self.assertGreater(len(keys), 30, text)
        for key in keys:
            self.assertNotIn("unknown key", self.refused_file(f"{key}: [[nothing takes this]]\n"), key)

    def test_the_printed_advanced_options_are_a_file_that_changes_nothing(self):
        text = subprocess.run([BIN / "trouped", "--help-advanced"], capture_output=True, text=True, check=True).stdout
        self.assertIn("  hang: 5s\n", text)
        path = self.directory / "troupe.yaml"
        path.write_text(f"gpus: 2\n{text}")
        self.start("one", "all", config=path).wait_serving(gpus=2)

    def test_an_option_is_set_by_its_name(self):
        self.assertIn("did you mean 'hang'", self.refused("all", hnag="5s"))
        self.assertIn("100ms", self.refused("all", directory="value", hang="soon"))

    def check(self, text, *flags):
        """(exit code, standard output, standard error) of `trouped --check`."""
        path = self.directory / "troupe.yaml"
        path.write_text(text)
        done = subprocess.run([BIN / "trouped", "--check", path, *flags], capture_output=True, text=True, timeout=60, cwd=self.directory)
        return done.returncode, done.stdout, done.stderr

    def test_a_file_is_checked_without_starting_anything(self):
        taken = socket.create_server(("127.0.0.1", 0))  # an address that a daemon could not have
        self.addCleanup(taken.close)
        text = f"role: node\nname: n\ndata: here\noperations: 127.0.0.1:{taken.getsockname()[1]}\n"
        self.assertEqual(self.check(text), (0, "valid: 'n', node\n", ""))
        self.assertEqual([path.name for path in self.directory.iterdir()], ["troupe.yaml"])
        code, out, error = self.check("role: node\ngpsu: 2\n")
        self.assertEqual((code, out), (2, ""))
        self.assertIn("troupe.yaml:2: gpsu: unknown key; did you mean 'gpus'?", error)
        code, _, error = self.check("role: node\nlisten: 10.0.0.1:0\n")
        self.assertEqual(code, 2)
        self.assertIn("troupe ca issue", error, "what contradicts itself is found too")
        self.assertEqual(self.check(text, "--detach")[0], 2)

    def test_the_version_names_release_commit_and_formats(self):
        for program in ("trouped", "troupe"):
            told = subprocess.run([BIN / program, "--version"], capture_output=True, text=True, check=True).stdout
            self.assertRegex(told, rf"^{program} \d+\.\d+\.\d+\ncommit ([0-9a-f]{{12}}|unknown)\nformats: metadata \d+, backup \d+, model \d+, ")

    def test_a_service_manager_is_told_of_start_life_and_end(self):
        at = self.directory / "notify"
        manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(manager.close)
        manager.bind(str(at))
        manager.settimeout(60)
        daemon = self.start("served", "manager", prefix=("env", f"NOTIFY_SOCKET={at}"))
        told = manager.recv(4096).decode().splitlines()
        self.assertEqual(told[0], "READY=1")
        self.assertEqual(told[1], f"STATUS={daemon.ready}")
        for _ in range(2):
            self.assertEqual(manager.recv(4096), b"WATCHDOG=1")
        daemon.process.terminate()
        eventually(lambda: manager.recv(4096) == b"STOPPING=1", "it says that it stops")
        daemon.process.wait()

    def test_unknown_flag(self):
        self.assertIn("--help", self.refused("all", ("gpu-memroy",)))

    def test_the_file_is_read_and_flags_win_over_it(self):
        path = self.directory / "troupe.yaml"
        path.write_text("role: all\nname: from-the-file\ngpus: 2\n")
        daemon = self.start("one", "all", config=path, name="from-the-flag").wait_serving(gpus=2)
        self.assertIn("from-the-flag", daemon.http.members())

    def detached(self, data):
        command = [BIN / "trouped", "--detach", "--role=all", f"--data={data}", f"--run={self.directory}/run",
                   "--manager=127.0.0.1:0", "--http=127.0.0.1:0", "--gpu-memory=64MiB", "--host-region=256MiB"]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    def test_a_detached_daemon_serves_when_the_command_returns(self):
        data = self.directory / "data"
        first = self.detached(data)
        self.assertEqual((first.returncode, first.stderr), (0, ""))
        pid = int(re.search(r"process (\d+), log ", first.stdout).group(1))
        http = Client(re.search(r"gateway at http://([^\s,]+)", first.stdout).group(1))
        self.assertEqual(http.get("/v2/health/live").code, 200)
        self.assertIn("ready:", (data / "trouped.log").read_text())
        second = self.detached(data)
        self.assertEqual((second.returncode, second.stdout), (2, ""))
        self.assertEqual(len(second.stderr.splitlines()), 1, second.stderr)
        self.assertIn(str(data), second.stderr)
        processes.kill(pid)
        unwritable = self.detached("/proc/troupe")
        self.assertEqual(unwritable.returncode, 2)
        self.assertIn("/proc/troupe/trouped.log", unwritable.stderr)

    def test_policies_by_preset_and_slot(self):
        self.assertIn("torpor-fifo", self.refused("all", policy="tropor"))
        self.assertIn("heaviness-aware", self.refused("all", directory="slot", eviction="mru"))
        # The value of the slot counts, wherever it stands beside the preset.
        path = self.directory / "troupe.yaml"
        path.write_text("role: all\nadvanced:\n  ordering: edf\npolicy: torpor\ntopology: [switch:0-1, link:0-1=12GB]\ngpus: 2\n")
        self.start("one", "all", config=path).wait_serving(gpus=2)
        log = (self.directory / "one" / "trouped.log").read_text()
        self.assertIn("ordering edf, gpu interference-aware, eviction heaviness-aware", log)

    def test_topology(self):
        self.assertIn("0-1=25GB", self.refused("all", topology="link:0-1"))
        self.assertIn("GPU 3", self.refused("all", directory="few", topology="v100x4", gpus=3))

    def test_port_in_use(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            for option in ("manager", "http", "operations", "listen"):
                line = self.refused("all", directory=option, **{option: f"127.0.0.1:{port}"})
                self.assertIn(str(port), line, option)
                self.assertIn(f"--{option}", line)
                # The errors are found before anything is started: nothing has to be stopped, and nothing was logged.
                self.assertEqual((self.directory / option / "trouped.log").read_text(), line + "\n")
                self.assertFalse((self.directory / option / "data").exists())
        for option in ("http", "listen"):
            self.assertIn(f"--{option} and --manager are both 127.0.0.1:{port}: give --{option} another port", self.refused(
                "all", directory=f"twice-{option}", manager=f"127.0.0.1:{port}", **{option: f"127.0.0.1:{port}"}))

    def test_data_directory_of_another_daemon(self):
        first = self.start("first", "all").wait_serving()
        line = self.refused("all", directory="second", data=first.settings["data"])
        self.assertIn(first.settings["data"], line)
        self.assertEqual(first.http.get("/v2/health/ready").code, 200)
        self.assertEqual(first.terminate(), 0)
        self.start("second", "all", data=first.settings["data"]).wait_serving()

    def test_data_directory_that_cannot_be_written(self):
        # Not even root makes a directory in /proc, or below a plain file.
        self.assertIn("/proc/troupe", self.refused("all", data="/proc/troupe"))
        (self.directory / "file").write_text("")
        self.assertIn("file/data", self.refused("all", directory="below", data=self.directory / "file" / "data"))

    def test_other_than_loopback_needs_to_be_said(self):
        for option in ("manager", "operations", "listen"):
            line = self.refused("all", directory=option, **{option: "0.0.0.0:0"})
            self.assertIn("--insecure-network", line, option)
        daemon = self.start("open", "all", ("insecure-network",), operations="0.0.0.0:0").wait_serving()
        self.assertEqual(daemon.http.get("/healthz").code, 200)

    def test_a_node_that_has_not_found_its_manager_is_not_healthy(self):
        node = self.start("lonely", "node", manager="127.0.0.1:1")
        eventually(lambda: "has not joined a cluster yet" in node.operations.get("/healthz").body.decode(),
                   "its health names the manager that is missing")
        health = node.operations.get("/healthz")
        self.assertEqual(health.code, 503)
        self.assertIn("127.0.0.1:1", health.body.decode())

    def test_a_node_needs_a_manager_with_a_port(self):
        self.assertIn("127.0.0.1:0", self.refused("node", manager="127.0.0.1:0"))


if __name__ == "__main__":
    main()
