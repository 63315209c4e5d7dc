#!/usr/bin/python3
"""How functions stand to their SLOs, and why a request was late: in the shell, and in a Prometheus that scrapes the daemons."""
import json
import pathlib
import re
import shutil
import subprocess
import unittest
import urllib.parse

import numpy as np

from harness import Client, E2eTest, eventually, main
from harness.client import infer_binary, infer_body
from harness.networks import scale
from harness.shell import Shell

RULES = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "prometheus" / "troupe.rules.yml"
PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
ONES = {"x": np.ones((2, 4), np.float32)}


class Slo(E2eTest):
    def setUp(self):
        super().setUp()
        self.front, self.nodes = self.start_cluster(1)
        self.shell = Shell(self.front.address("manager"), self.directory)

    def ask(self, name, request_id=None):
        body = json.loads(infer_body(ONES))
        if request_id:
            body["id"] = request_id
        return self.front.http.post(f"/v2/models/{name}/infer", body)

    def test_a_late_request_is_counted_and_explained(self):
        # Nothing can be answered in a microsecond, and everything in a minute.
        self.front.http.deploy("hopeless", scale(2), "?deadline_ms=0.001&percentile=98").good()
        self.front.http.deploy("easy", scale(3), "?deadline_ms=60000&percentile=98").good()
        for i in range(5):
            self.ask("hopeless", f"late-{i}").good()
            self.ask("easy").good()
        slos = {slo["function"]["name"]: slo for slo in self.shell.json("slo")["slos"]}
        self.assertEqual(int(slos["easy"]["total"]["in_time"]), 5)
        self.assertEqual(int(slos["easy"]["hour"]["in_time"]), 5)
        late = slos["hopeless"]["total"]
        self.assertEqual(sum(int(late.get(f"late_{cause}", 0)) for cause in ("queue", "swap", "run", "network")), 5)
        self.assertEqual(int(late.get("in_time", 0)), 0)
        (timeline,) = self.shell.json("why", "late-3")["timelines"]
        self.assertEqual(timeline["function"]["name"], "hopeless")
        self.assertEqual(timeline["node"], "node-0")
        times = timeline["times"]
        self.assertLessEqual(sum(int(value) for value in times.values()), int(timeline["took_ns"]))
        self.assertGreater(int(times["compute_ns"]), 0)
        self.assertIn(timeline["story"]["source"], ("resident", "host", "loading"))
        self.assertIn("late by", self.shell.text("why", "late-3"))
        self.assertIn("hopeless", self.shell.text("why"), "the slowest of the last minute")
        self.assertIn("0.00 %", self.shell.text("slo", "hopeless"))
        self.assertIn("slo", self.shell.json("function", "show", "easy")["functions"][0])

    def test_counts_outlive_the_gateway(self):
        front = self.start("one", "all").wait_serving()
        front.http.deploy("easy", scale(3), "?deadline_ms=60000&percentile=98").good()
        for expected in (3, 6):
            for _ in range(3):
                infer_binary(front.http, "easy", ONES)
            shell = Shell(front.address("manager"), self.directory)
            (slo,) = shell.json("slo")["slos"]
            self.assertEqual((int(slo["total"]["in_time"]), int(slo["hour"]["in_time"])), (expected, expected))
            self.assertEqual(front.terminate(), 0)
            front = self.start("one", "all").wait_serving()

    def test_the_steps_of_a_run_are_explained(self):
        self.front.http.deploy("double", scale(2)).good()
        self.front.http.call("POST", "/v2/troupe/workflows", """
name: twice
inputs: {x: {type: FP32, shape: [-1, 4]}}
steps:
  - {name: first, function: double, inputs: {x: x}}
  - {name: second, function: double, inputs: {x: first.y}}
outputs: {y: second.y}
""").good()
        self.assertEqual(self.ask("twice", "order-1").good().json["outputs"][0]["data"], [4.0] * 8)
        first, second = self.shell.json("why", "order-1")["timelines"]
        self.assertEqual((first["id"], second["id"]), ("order-1/first", "order-1/second"))
        self.assertLessEqual(int(first["ended_unix_ns"]), int(second["ended_unix_ns"]))
        self.assertGreater(int(second["times"]["compute_ns"]), 0)
        text = self.shell.text("why", "order-1")
        self.assertIn("run order-1  2 requests in", text)
        self.assertIn("  second ", text)

    def test_what_does_not_exist_is_said(self):
        self.assertIn("there is no function 'absent'", self.shell.error("slo", "absent", code=3))
        self.assertIn("no gateway remembers a request with the id 'absent'", self.shell.error("why", "absent", code=3))

    @unittest.skipUnless(PROMETHEUS and PROMTOOL, "prometheus is not installed: deploy/bootstrap.sh brings Debian's")
    def test_prometheus_scrapes_every_daemon_and_computes_the_rules(self):
        for command in (["check", "rules", str(RULES)], ["test", "rules", str(RULES.with_name("troupe.rules.test.yml"))]):
            checked = subprocess.run([PROMTOOL, *command], capture_output=True, text=True, timeout=60)
            self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
        self.front.http.deploy("double", scale(2), "?deadline_ms=60000&percentile=98").good()
        self.ask("double").good()
        prometheus = self.prometheus([daemon.address("operations") for daemon in (self.front, *self.nodes)]
                                     + [self.front.address("gateway").removeprefix("http://")])
        self.assertEqual(self.first(prometheus, 'troupe_slo_requests_total{function="double",outcome="in_time"}'), 1)
        self.assertAlmostEqual(self.first(prometheus, 'troupe:slo_budget:share{function="double"}'), 0.02)
        self.assertEqual(self.first(prometheus, "troupe_models_short_of_copies"), 0)
        self.assertGreater(self.first(prometheus, "troupe_data_free_bytes"), 0)
        self.assertGreater(self.first(prometheus, "troupe_gpu_up"), 0)

    def prometheus(self, targets):
        """A client of a Prometheus that scrapes these addresses."""
        home = self.directory / "prometheus"
        home.mkdir()
        (home / "prometheus.yml").write_text(json.dumps(
            {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [str(RULES)],
             "scrape_configs": [{"job_name": "troupe", "static_configs": [{"targets": targets}]}]}))
        with (home / "log").open("w") as log:
            process = subprocess.Popen([PROMETHEUS, f"--config.file={home}/prometheus.yml", f"--storage.tsdb.path={home}/data",
                                        "--web.listen-address=127.0.0.1:0"], stdout=subprocess.DEVNULL, stderr=log)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        listening = re.compile(r'msg="Listening on" address=(127\.0\.0\.1:\d+)')
        return Client(eventually(lambda: listening.search((home / "log").read_text()), "Prometheus listens").group(1))

    def first(self, prometheus, query):
        """The value of the first series that the query finds, once it finds one."""
        def found():
            try:
                answer = prometheus.get("/api/v1/query?query=" + urllib.parse.quote(query))
            except OSError:
                return None  # it is starting
            return answer.json["data"]["result"] if answer.code == 200 else None
        return float(eventually(found, f"Prometheus has {query}")[0]["value"][1])


if __name__ == "__main__":
    main()
