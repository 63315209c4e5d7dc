#!/usr/bin/python3
"""The audit log: every change that was acknowledged has exactly one line, which says who, what, from where and how it ended."""
import collections
import json
import os
import stat
import threading

import numpy as np

from harness import E2eTest, eventually, main
from harness.networks import scale
from harness.shell import Shell

X = {"x": np.ones((1, 4), np.float32)}


class Audit(E2eTest):
    def setUp(self):
        super().setUp()
        self.manager = self.start("manager", "manager", switches=["allow-faults"])
        address = self.manager.address("manager")
        self.node = self.start("node", "node", manager=address, switches=["allow-faults"])
        self.gateway = self.start("gateway", "gateway", manager=address)
        self.gateway.wait_serving(gpus=0)
        self.shell = Shell(address, self.directory)
        self.user = f"user/{os.geteuid()}"
        self.wanted = collections.Counter()

    def lines(self, *words, daemon=None):
        data = (daemon or self.manager).settings["data"]
        return [json.loads(line) for line in
                self.shell.text("audit", "--data", data, "--last", "100000", "--json", *words).splitlines()]

    def expect(self, who, action, part, result="ok"):
        self.wanted[who, action, part, result] += 1

    def check(self):
        """Each expected line is there as often as it was expected, and there is no other but joins."""
        lines, path = self.lines(), self.manager.directory / "data" / "audit" / "audit.jsonl"
        kept = [json.loads(line) for line in path.read_text().splitlines()]
        self.assertEqual([line["number"] for line in kept], list(range(1, len(kept) + 1)))
        begun = {line["number"] for line in kept if line["result"] == "begun"}
        self.assertEqual({line["number"] for line in lines}, {line["number"] for line in kept} - begun)
        # A change that a gateway or the manager refuses at once has not begun and has no line.
        self.assertGreaterEqual(len(begun), sum(count for what, count in self.wanted.items() if what[3] == "ok"))
        rest = [line for line in lines if line["action"] != "member.join"]
        for (who, action, part, result), count in self.wanted.items():
            fit = [line for line in rest if (line["who"], line["action"], line["result"]) == (who, action, result)
                   and part in line["what"]]
            self.assertEqual(len(fit), count, f"{who} {action} {part} {result}: {fit}")
        self.assertEqual(len(rest), sum(self.wanted.values()), rest)

    def test_each_change_has_one_line(self):
        http = self.gateway.http
        joins = self.lines("--what", "member.join")
        self.assertEqual({line["who"] for line in joins}, {"member/node", "member/gateway"})
        # Changes over HTTP, before there is a key.
        http.deploy("double", scale(2)).good()
        self.expect("loopback", "function.deploy", "'double'")
        self.assertEqual(http.deploy("double!", scale(2)).code, 400)
        self.expect("loopback", "function.deploy", "'double!'", "INVALID_ARGUMENT")
        # Changes by the shell.
        key = self.shell.text("key", "create", "ci", "--scope", "deploy,read,infer").strip()
        self.expect(self.user, "key.create", "key 'ci' with deploy, read, infer")
        headers = {"Authorization": f"Bearer {key}"}
        eventually(lambda: http.call("GET", "/v2/troupe/cluster").code == 401, "the gateway has heard of the key")
        # Changes with the key.
        def change(method, path, action, part, body=b"", code=200, result="ok"):
            answer = http.call(method, path, body, headers)
            self.assertEqual(answer.code, code, answer.body)
            self.expect("key/ci", action, part, result)
        change("POST", "/v2/troupe/functions/triple", "function.deploy", "'triple'", scale(3))
        change("POST", "/v2/repository/models/triple/unload", "function.unload", "'triple'")
        change("POST", "/v2/repository/models/triple/load", "function.load", "'triple'")
        change("DELETE", "/v2/troupe/functions/triple", "function.remove", "'triple'")
        change("DELETE", "/v2/troupe/functions/triple", "function.remove", "'triple'", code=404, result="NOT_FOUND")
        change("DELETE", "/v2/troupe/runs/none", "run.cancel", "'none'", code=404, result="NOT_FOUND")
        # The gateway refuses this change without asking the cluster.
        self.assertEqual(http.call("DELETE", "/v2/troupe/functions/double").code, 401)
        # Requests that only read have no line.
        self.shell.text("function", "list")
        self.shell.text("cluster", "status")
        # The other verbs of operators.
        self.shell.run("node", "drain", "node")
        self.expect(self.user, "node.drain", "'node'")
        self.shell.run("key", "revoke", "ci")
        self.expect(self.user, "key.revoke", "'ci'")
        self.check()
        by_key = self.lines("--who", "key")
        self.assertEqual({(line["who"], line["from"], line["via"]) for line in by_key},
                         {("key/ci", "127.0.0.1", "gateway")})
        table = self.shell.text("audit", "--data", self.manager.settings["data"], "--last", "1")
        self.assertRegex(table, rf"^\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d  {self.user} from .*  key.revoke  key 'ci'  ok\n$")
        # Only the operator's user can read the file, and it holds no secret.
        path = self.manager.directory / "data" / "audit" / "audit.jsonl"
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        self.assertNotIn(key.removeprefix("troupe_"), path.read_text())
        # A manager that is killed and comes back goes on behind the last line.
        self.manager.kill()
        self.manager = self.start("manager", "manager", manager=self.manager.address("manager"), switches=["allow-faults"])
        eventually(lambda: http.members().get("node") if http.get("/v2/troupe/cluster").code == 200 else None,
                   "the node is back")
        http.deploy("later", scale(4)).good()
        self.expect("loopback", "function.deploy", "'later'")
        self.check()
        # Only the daemon itself knows the level of its log, so a change of it stands in the daemon's own audit.
        self.node.operations.call("PUT", "/loglevel", b"debug").good()
        eventually(lambda: self.lines(daemon=self.node), "the node's audit has a line")
        self.assertEqual([(line["who"], line["action"], line["what"]) for line in self.lines(daemon=self.node)],
                         [("loopback", "log.level", "daemon 'node' to debug")])

    def test_many_at_a_time(self):
        def deploy(i):
            self.gateway.http.deploy(f"f{i}", scale(i)).good()
        threads = [threading.Thread(target=deploy, args=(i,)) for i in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for i in range(12):
            self.expect("loopback", "function.deploy", f"'f{i}'")
        self.check()


if __name__ == "__main__":
    main()
