#!/usr/bin/python3
"""A cluster as an operator makes one: from packages and an inventory to answers, and through what happens to it later.

The tests are one story, in the order of their numbers: each goes on with the hosts that the one before left. Where hosts
cannot be made, the reason is said and the exit code is 77.

    tests/deploy/deploy_test.py --build build/release [--figures build/bench] [-k NAME]
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/deploy"), str(ROOT / "bench"), str(ROOT / "tests/e2e/harness")]
from rig import hosts, packages  # noqa: E402
from rig.hosts import run  # noqa: E402
from rig.load import Clients, Traffic  # noqa: E402
from rig.playbooks import PLAYBOOKS, Operator  # noqa: E402
from report import Report  # noqa: E402
from waiting import eventually  # noqa: E402

SKIPPED = 77
given = None  # the command line
figures = {}
DIGITS = ROOT / "examples/digits/digits.onnx"
IMAGE = {"inputs": [{"name": "image", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": [0.5] * 64}]}


def built_packages():
    """Without those for NVIDIA's driver, which these hosts have not."""
    built = pathlib.Path(given.build) / "packages"
    found = sorted(path for path in built.glob("troupe-*.deb") if packages.name(path) != "troupe-cuda")
    if not found:
        sys.exit(f"test-deploy: {built} has no packages: run `make package`")
    return found


def base_of(built):
    return hosts.base_root(pathlib.Path(given.build).parent / "deploy", packages.dependencies(built))


class Story(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.packages = built_packages()
        cls.site = hosts.Site(base_of(cls.packages))
        cls.folder = cls.site.folder
        cls.first = cls.folder / "packages"
        cls.first.mkdir()
        for package in cls.packages:
            shutil.copy(package, cls.first)
        log = pathlib.Path(given.build).parent / "deploy/plays.log"
        cls.operator = Operator(cls.site, pathlib.Path(given.build) / "bin", cls.first, log)
        cls.operator.groups = {"managers": ["head"], "gateways": ["head", "node-1"], "nodes": ["node-1", "node-2"], "spares": []}
        node = {"troupe_node_options": {"gpus": 2, "gpu-memory": "64MiB", "host-region": "256MiB"},
                "troupe_node_advanced": {"arena": "32MiB"}}
        cls.operator.group_variables = {
            "managers": {"troupe_manager_options": {"replicas": 2, "allow-faults": True},
                         "troupe_manager_advanced": {"arena": "32MiB", "replace-after": "2s"}},
            "gateways": {"troupe_gateway_options": {"http": "0.0.0.0:8000"}, "troupe_gateway_advanced": {"arena": "32MiB"}},
            "nodes": {**node, "troupe_node_options": {**node["troupe_node_options"], "allow-faults": True}}, "spares": node}
        for name in ("head", "node-1", "node-2", "node-3", "alone"):
            cls.site.host(name)
        for host in cls.site.hosts.values():
            host.await_up()
        cls.operator.write()

    @classmethod
    def tearDownClass(cls):
        cls.site.close()

    def host(self, name):
        return self.site.hosts[name]

    def troupe(self, *words, host="head", check=True):
        """The command line on the manager's host, as the administrator of the playbooks."""
        return self.host(host).run("env", f"TROUPE_MANAGER={self.host('head').address}:7400", "TROUPE_TLS_DIR=/etc/troupe/tls/admin",
                                   "troupe", *words, check=check)

    def members(self):
        """{name: state}."""
        listed = json.loads(self.troupe("cluster", "status", "--json").stdout)["status"]["members"]
        return {one["member"]["name"]: one["member"]["state"] for one in listed}

    def clients(self):
        return Clients([f"{self.host(name).address}:8000" for name in ("head", "node-1")], "digits", json.dumps(IMAGE), type(self).key)

    def version_of(self, host, package="troupe-daemon"):
        return self.host(host).run("dpkg-query", "--show", "--showformat", "${Version}", package, check=False).stdout

    def use(self, folder):
        """The operator's packages from now on."""
        self.operator.variables["troupe_packages"] = str(folder)
        self.operator.write()

    # --- before anything is there ---

    def test_01_a_wrong_inventory_changes_nothing(self):
        self.operator.write("wrong.yml", managers=["head", "node-2"])
        self.operator.play("certificates.yml", "-e", f"troupe_program={self.operator.programs}/troupe", inventory="wrong.yml").good()
        self.operator.play("site.yml", inventory="wrong.yml").bad("has 2 hosts in managers", "exactly one manager")
        self.operator.write("wrong.yml", spares=["node-2"])
        self.operator.play("site.yml", inventory="wrong.yml").bad("in nodes and in spares", "node-2")
        self.assertEqual(self.version_of("head"), "")
        shutil.rmtree(self.operator.folder / "certificates")
        self.operator.play("site.yml").bad("has no certificate: run certificates.yml first")

    def test_02_a_host_whose_clock_is_an_hour_off_is_refused(self):
        # `date` alone is an hour ahead: a container cannot have a clock of its own.
        liar = self.host("head").root / "usr/local/bin/date"
        liar.write_text("#!/bin/sh\nexec /usr/bin/date --date='now + 1 hour' \"$@\"\n")
        liar.chmod(0o755)
        self.operator.play("site.yml").bad("The clock of head is 3", "s off from that of", "set the clock right")
        liar.unlink()

    # --- from nothing to an answer ---

    def test_03_from_nothing_to_a_first_answer(self):
        # One host was left by an installation that was interrupted between unpacking and configuring.
        daemon = next(path for path in self.packages if packages.name(path) == "troupe-daemon")
        shutil.copy(daemon, self.host("node-2").root / "root/half.deb")
        self.host("node-2").run("dpkg", "--unpack", "/root/half.deb")
        for name in ("head", "node-1"):  # from nothing: what the tests before left
            self.host(name).run("sh", "-c", "dpkg --purge $(dpkg-query --show --showformat '${Package} ' 'troupe-*' 2>/dev/null) ; rm -rf /var/cache/troupe", check=False)
        began = time.monotonic()
        self.operator.play("certificates.yml", "-e", f"troupe_program={self.operator.programs}/troupe").good()
        self.operator.play("site.yml").good()
        shutil.copy(DIGITS, self.host("head").root / "root/digits.onnx")
        self.troupe("function", "deploy", "digits", "/root/digits.onnx")
        type(self).key = self.troupe("key", "create", "operator", "--scope", "infer,read").stdout.strip()
        answer = self.clients().ask({}, 0)
        figures["minutes_to_first_answer/three-hosts"] = (time.monotonic() - began) / 60
        self.assertEqual(answer["outputs"][0]["shape"], [1, 10])
        self.assertEqual(self.members(), {"head-gateway": "MEMBER_ALIVE", "node-1-gateway": "MEMBER_ALIVE",
                                          "node-1-node": "MEMBER_ALIVE", "node-2-node": "MEMBER_ALIVE"})

    def test_04_a_second_run_changes_nothing(self):
        changed = self.operator.play("site.yml").good().changed
        figures["second_run_changed"] = sum(changed.values())
        self.assertEqual(changed, {"head": 0, "node-1": 0, "node-2": 0})

    def test_05_secrets_may_be_in_a_vault(self):
        (self.operator.folder / "vault-password").write_text("of the test\n")
        keys = sorted((self.operator.folder / "certificates").glob("*/key.pem"))
        self.operator.vault("encrypt", *keys)
        self.assertTrue(keys[0].read_text().startswith("$ANSIBLE_VAULT"))
        self.operator.play("site.yml", "--limit", "head").bad("A vault password or secret must be specified")
        changed = self.operator.play("site.yml", "--limit", "head", "--vault-password-file", "vault-password").good().changed
        self.assertEqual(changed, {"head": 0}, "what was decrypted on the way is what is there")
        self.operator.vault("decrypt", *keys)

    # --- units ---

    def test_06_jails_hold_inside_of_the_units(self):
        """A model was imported with --import-sandbox required, or test 03 had failed; and the workers are jailed."""
        node = self.host("node-1")
        workers = node.run("pgrep", "--exact", "troupe-gpu-work").stdout.split()
        self.assertEqual(len(workers), 2)
        for worker in workers:
            status = dict(line.split(":\t", 1) for line in node.run("cat", f"/proc/{worker}/status").stdout.splitlines() if ":\t" in line)
            self.assertEqual((status["Seccomp"], status["NoNewPrivs"], status["CapBnd"].strip("0")), ("2", "1", ""))
        log = self.host("head").run("journalctl", "--unit", "troupe-manager", "--output", "cat").stdout
        self.assertNotIn("sandbox", "\n".join(line for line in log.splitlines() if "warn" in line), log)
        self.assertNotIn("jail", node.run("journalctl", "--unit", "troupe-node", "--output", "cat").stdout)

    def test_07_workers_outlive_the_daemon_and_the_watchdog_ends_one_that_hangs(self):
        node = self.host("node-2")
        workers = lambda: sorted(node.run("pgrep", "--exact", "troupe-gpu-work", check=False).stdout.split())
        main = lambda: node.run("systemctl", "show", "--property", "MainPID", "--value", "troupe-node").stdout.strip()
        healthy = lambda: node.run("curl", "--silent", "--fail", "http://127.0.0.1:7403/healthz", check=False).returncode == 0
        before = workers()
        node.run("systemctl", "restart", "troupe-node")
        eventually(healthy, "the node serves after a restart")
        self.assertEqual(workers(), before, "a restart left the workers alone")
        killed = main()
        node.run("kill", "-KILL", killed)
        eventually(lambda: main() not in ("0", killed) and healthy(), "systemd started another one")
        self.assertEqual(workers(), before, "kill -9 left the workers alone")
        stopped = main()
        node.run("sh", "-c", "mkdir -p /run/systemd/system/troupe-node.service.d && printf '[Service]\\nWatchdogSec=3\\n' > "
                 "/run/systemd/system/troupe-node.service.d/test.conf && systemctl daemon-reload && systemctl restart troupe-node")
        eventually(lambda: main() not in ("0", stopped) and healthy(), "the node serves with a shorter watchdog")
        stopped = main()
        node.run("kill", "-STOP", stopped)
        eventually(lambda: main() not in ("0", stopped) and healthy(), "the watchdog ended the one that stood still")
        self.assertIn("watchdog", node.run("journalctl", "--unit", "troupe-node", "--output", "cat").stdout.lower())
        self.assertEqual(workers(), before, "and left the workers alone")
        node.run("sh", "-c", "rm -r /run/systemd/system/troupe-node.service.d && systemctl daemon-reload && systemctl restart troupe-node")
        eventually(healthy, "the node serves again")

    def test_08_a_wrong_option_is_refused_before_the_daemon_is_touched(self):
        before = self.host("head").run("cat", "/etc/troupe/manager.yml").stdout
        options = self.operator.group_variables["managers"]["troupe_manager_options"]
        options["replicsa"] = 3
        self.operator.write()
        self.operator.play("site.yml", "--limit", "head").bad("replicsa", "did you mean 'replicas'?")
        del options["replicsa"]
        self.operator.write()
        self.assertEqual(self.host("head").run("cat", "/etc/troupe/manager.yml").stdout, before)
        self.clients().ask({}, 0)

    def test_09_a_playbook_that_was_interrupted_is_run_again(self):
        self.operator.group_variables["nodes"]["troupe_node_options"]["log-level"] = "debug"
        self.operator.write()
        playing = self.operator.begin("site.yml")
        for line in playing.stdout:
            if "PLAY [Nodes]" in line:
                playing.kill()
                break
        playing.wait()
        playing.stdout.close()
        self.operator.play("site.yml").good()
        node = self.host("node-2")
        self.assertIn("log-level: debug", node.run("cat", "/etc/troupe/node.yml").stdout)
        self.assertEqual(sum(self.operator.play("site.yml").good().changed.values()), 0)
        # As a play leaves it that ends between the two: the configuration is written, and not in force.
        main = lambda: node.run("systemctl", "show", "--property", "MainPID", "--value", "troupe-node").stdout.strip()
        before = main()
        node.run("touch", "/etc/troupe/node.yml")
        self.assertEqual(self.operator.play("site.yml").good().changed, {"head": 0, "node-1": 0, "node-2": 1})
        self.assertNotEqual(main(), before, "the node was started anew with its configuration")

    def test_10_a_host_that_does_not_answer_is_named(self):
        self.operator.write("gone.yml", nodes=["node-1", "node-2", "nowhere"])
        self.operator.play("rolling-upgrade.yml", inventory="gone.yml").bad("nowhere", "UNREACHABLE")
        self.clients().ask({}, 0)

    # --- another release ---

    def test_11_an_upgrade_under_load_fails_no_request(self):
        self.use(self.folder / "next")
        packages.with_version(self.packages, "99.1", self.folder / "next", self.folder)
        clients = self.clients()
        pace = clients.capacity(threads=4, seconds=4) / 2
        traffic = Traffic(clients, threads=4, pace=pace / 4)
        upgraded = self.operator.play("rolling-upgrade.yml")
        answered, failures = traffic.stop()
        upgraded.good()
        figures["upgrade_failed_requests"] = len(failures)
        figures["upgrade_requests"] = answered
        self.assertEqual(failures[:3], [], f"{answered} answered")
        self.assertEqual({name: self.version_of(name) for name in ("head", "node-1", "node-2")},
                         {"head": "99.1", "node-1": "99.1", "node-2": "99.1"})
        self.assertEqual(set(self.members().values()), {"MEMBER_ALIVE"})

    def test_12_an_upgrade_stops_where_a_node_does_not_come_back(self):
        packages.with_version(self.packages, "99.2", self.folder / "later", self.folder)
        self.use(self.folder / "later")
        self.operator.variables["troupe_patience"] = 6
        self.operator.write()
        # The next daemon of this host ends at once.
        self.host("node-1").run("sh", "-c", "mkdir -p /run/systemd/system/troupe-node.service.d && printf '[Service]\\nExecStart=\\nExecStart=/bin/false\\n' > "
                                "/run/systemd/system/troupe-node.service.d/test.conf && systemctl daemon-reload")
        self.operator.play("rolling-upgrade.yml").bad("The upgrade stopped at node-1", "Upgraded: head.", "Not touched: node-2.")
        self.assertEqual(self.version_of("node-2"), "99.1")
        self.clients().ask({}, 0)
        self.host("node-1").run("sh", "-c", "rm -r /run/systemd/system/troupe-node.service.d && systemctl daemon-reload && systemctl reset-failed troupe-node")
        del self.operator.variables["troupe_patience"]
        self.operator.write()
        self.operator.play("rolling-upgrade.yml").good()
        self.assertEqual(self.version_of("node-2"), "99.2")
        self.assertEqual(set(self.members().values()), {"MEMBER_ALIVE"})

    def test_13_an_older_release_does_not_replace_a_newer_one(self):
        self.use(self.folder / "next")
        self.operator.play("site.yml", "--limit", "head").bad("newer than the files in", "troupe-daemon 99.2")
        self.use(self.folder / "later")
        self.assertEqual(self.version_of("head"), "99.2")

    # --- every day ---

    def test_14_drain_and_back(self):
        self.operator.play("drain.yml").bad("Say which host with --limit")
        self.operator.play("drain.yml", "--limit", "node-1").good()
        self.assertEqual(self.members()["node-1-node"], "MEMBER_DRAINING")
        self.clients().ask({}, 0)
        self.operator.play("drain.yml", "--limit", "node-1", "-e", "undo=true").good()
        self.assertEqual(self.members()["node-1-node"], "MEMBER_ALIVE")

    def test_15_backup_and_restore(self):
        self.operator.play("backup.yml").good()
        [backup] = (self.operator.folder / "backups").iterdir()
        self.troupe("function", "deploy", "later", "/root/digits.onnx")
        (self.operator.folder / "damaged.tar.gz").write_bytes(backup.read_bytes()[:2000])
        self.operator.play("restore.yml", "-e", f"backup={self.operator.folder}/damaged.tar.gz").bad("The backup, unpacked on the host")
        self.assertIn("later", self.troupe("function", "list").stdout)
        self.operator.play("restore.yml", "-e", f"backup={backup}").good()
        listed = self.troupe("function", "list").stdout
        self.assertIn("digits", listed)
        self.assertNotIn("later", listed)
        self.clients().ask({}, 0)

    def test_16_chaos(self):
        plan = self.operator.folder / "plan.yaml"
        plan.write_text("faults:\n  - {at: 0s, fault: kill-worker, member: node-1-node, gpu: 0}\n")
        self.operator.play("chaos.yml", "-e", f"plan={plan}").good()
        plan.write_text("faults:\n  - {at: 0s, fault: kill-wroker, member: node-1-node}\n")
        self.operator.play("chaos.yml", "-e", f"plan={plan}").bad("kill-wroker")

    def test_17_a_dead_node_is_replaced_by_a_new_host(self):
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.operator.folder / "provisioner")
        keys = self.host("node-3").root / "root/.ssh/authorized_keys"
        keys.write_text(keys.read_text() + (self.operator.folder / "provisioner.pub").read_text())
        self.operator.groups["spares"] = ["node-3"]
        self.operator.write()
        self.operator.play("certificates.yml", "-e", f"troupe_program={self.operator.programs}/troupe").good()
        self.operator.play("site.yml", "--limit", "head").good()
        self.assertEqual(self.operator.play("site.yml", "--limit", "head").good().changed, {"head": 0})
        began = time.monotonic()
        self.host("node-2").pull_the_plug()
        eventually(lambda: self.members().get("node-3-node") == "MEMBER_ALIVE", "the spare host is a node", 180)
        figures["replaced_seconds"] = time.monotonic() - began
        eventually(lambda: "node-3 is a node in the place of node-2-node" in self.host("head").run(
            "journalctl", "--unit", "troupe-provisioner", "--output", "cat").stdout, "the provisioner says so", 60)
        self.operator.play("drain.yml", "--limit", "node-1").good()  # so that the new one answers
        self.clients().ask({}, 0)
        self.operator.play("drain.yml", "--limit", "node-1", "-e", "undo=true").good()
        # The dead node is not to come back.
        certificates = self.operator.folder / "certificates"
        run(f"{self.operator.programs}/troupe", "ca", "revoke", "--ca", certificates / "ca", "node-2-node")
        self.operator.play("site.yml", "--limit", "head").good()
        revoked = (certificates / "ca/revoked.pem").read_text()
        self.assertNotEqual(revoked, (certificates / "node-2-node/revoked.pem").read_text())
        for role in ("manager", "gateway", "admin"):
            self.assertEqual((self.host("head").root / f"etc/troupe/tls/{role}/revoked.pem").read_text(), revoked, role)

    def test_18_remove(self):
        self.operator.play("remove.yml").bad("Say which hosts with --limit")
        self.operator.play("remove.yml", "--limit", "node-1", "-e", "purge=true").good()
        node = self.host("node-1")
        self.assertEqual(node.run("sh", "-c", "pgrep --uid troupe; pgrep trouped; pgrep --exact troupe-gpu-work", check=False).stdout, "")
        self.assertEqual(node.run("sh", "-c", "ls -d /var/lib/troupe /etc/troupe /run/troupe /usr/bin/trouped /var/cache/troupe", check=False).stdout, "")
        self.assertEqual(node.run("sh", "-c", "dpkg-query --show 'troupe-*' | awk '$2'", check=False).stdout, "")

    # --- packages without Ansible, on a host of their own ---

    def test_20_packages_are_installed_started_upgraded_removed_and_purged(self):
        alone = self.host("alone")
        ask = lambda: alone.run("curl", "--silent", "--fail", "--max-time", "20", "http://127.0.0.1:8000/v2/models/digits/infer",
                                "--data", json.dumps(IMAGE), check=False)
        healthy = lambda: all(alone.run("curl", "--silent", "--fail", f"http://127.0.0.1:{port}/healthz", check=False).returncode == 0
                              for port in (7401, 7402, 7403))
        before = packages.with_version(self.packages, "0.0.9", self.folder / "before", self.folder)
        (alone.root / "root/before").mkdir()
        (alone.root / "root/now").mkdir()
        for folder, files in (("before", before), ("now", self.packages)):
            for path in files:
                shutil.copy(path, alone.root / "root" / folder)
        shutil.copy(DIGITS, alone.root / "var/tmp/digits.onnx")
        alone.run("sh", "-c", "apt-get install --yes --no-install-recommends /root/before/*.deb")
        self.assertIn("inactive", alone.run("systemctl", "is-active", "troupe-manager", check=False).stdout)
        alone.run("sh", "-c", "sed -i 's/^gpus: 1/gpus: 1\\ngpu-memory: 64MiB\\nhost-region: 256MiB/' /etc/troupe/node.yml")
        alone.run("systemctl", "enable", "--now", "troupe-manager", "troupe-gateway", "troupe-node")
        eventually(healthy, "the three daemons of one host serve")
        # Without certificates the manager answers only its own user, whom the kernel names.
        alone.run("runuser", "--user", "troupe", "--", "troupe", "function", "deploy", "digits", "/var/tmp/digits.onnx")
        self.assertIn("digits", alone.run("runuser", "--user", "troupe", "--", "troupe", "function", "list").stdout)
        self.assertEqual(ask().returncode, 0)
        alone.run("sh", "-c", "cd /root; cat > traffic.sh <<'END'\nwhile [ ! -e stop ]; do curl --silent --fail --retry 20 --retry-all-errors --retry-delay 1 "
                  "--max-time 20 http://127.0.0.1:8000/v2/models/digits/infer --data @body >/dev/null && echo good >> traffic || echo failed >> traffic; done\nEND\n"
                  f"printf '%s' '{json.dumps(IMAGE)}' > body; setsid sh traffic.sh >/dev/null 2>&1 </dev/null &")
        worker = alone.run("pgrep", "--exact", "troupe-gpu-work").stdout
        alone.run("sh", "-c", "DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends /root/now/*.deb")
        eventually(healthy, "the three daemons of the next release serve")
        self.assertEqual(self.version_of("alone"), packages.field(self.packages[0], "Version"))
        self.assertEqual(alone.run("pgrep", "--exact", "troupe-gpu-work").stdout, worker, "the worker went on, with its models")
        self.assertIn("gpu-memory: 64MiB", alone.run("cat", "/etc/troupe/node.yml").stdout)
        self.assertEqual(ask().returncode, 0, "what was deployed before is served after")
        lines = lambda: alone.run("cat", "/root/traffic").stdout.split()
        asked = len(lines())
        eventually(lambda: len(lines()) > asked + 5, "clients are answered")
        alone.run("touch", "/root/stop")
        self.assertNotIn("failed", lines())
        names = [packages.name(path) for path in self.packages]
        alone.run("dpkg", "--remove", *names)
        self.assertEqual(alone.run("sh", "-c", "pgrep trouped; pgrep --exact troupe-gpu-work", check=False).stdout, "")
        self.assertEqual(alone.run("sh", "-c", "ls -d /usr/bin/trouped", check=False).stdout, "")
        self.assertIn("digits", alone.run("sh", "-c", "ls /var/lib/troupe/manager /etc/troupe/node.yml && grep -rl digits /var/lib/troupe/manager/audit && echo digits").stdout)
        alone.run("dpkg", "--purge", *names)
        self.assertEqual(alone.run("sh", "-c", "ls -d /var/lib/troupe /etc/troupe /run/troupe", check=False).stdout, "")
        self.assertEqual(alone.run("sh", "-c", "systemctl list-unit-files 'troupe*' --no-legend", check=False).stdout, "")


def write_figures():
    report = Report("deploy", given.figures, note="three hosts and a spare as containers of one machine; their base system has the "
                    "packages' dependencies already, and the packages are built")
    for name, unit in (("minutes_to_first_answer/three-hosts", "min"), ("second_run_changed", "tasks"),
                       ("upgrade_failed_requests", "requests"), ("upgrade_requests", "requests"), ("replaced_seconds", "s")):
        if name in figures:
            report.add(name, [figures[name]], unit)
    report.write()


def main():
    global given
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=str(ROOT / "build/release"))
    parser.add_argument("--figures", default="", help="folder for deploy.json; empty: none is written")
    parser.add_argument("-k", action="append", default=[], help="only tests with this in their names; they build on each other")
    parser.add_argument("--keep-going", action="store_true", help="go on after a failure, which may be why later tests fail")
    given = parser.parse_args()
    given.build = str(pathlib.Path(given.build).resolve())
    if reason := hosts.why_not():
        print(f"test-deploy: SKIPPED, nothing was tested: {reason}")
        sys.exit(SKIPPED)
    try:
        base_of(built_packages())  # out here, where apt reaches its archive
    except RuntimeError as failure:
        print(f"test-deploy: SKIPPED, nothing was tested: the hosts' base system cannot be made: {failure}")
        sys.exit(SKIPPED)
    hosts.enter()
    loader = unittest.TestLoader()
    loader.testNamePatterns = [f"*{name}*" for name in given.k] or None
    # Else the first failure ends the story: what follows builds on what did not happen.
    result = unittest.TextTestRunner(verbosity=2, failfast=not given.keep_going).run(loader.loadTestsFromTestCase(Story))
    if given.figures and result.wasSuccessful() and not given.k:
        write_figures()
    sys.exit(not result.wasSuccessful())


if __name__ == "__main__":
    main()
