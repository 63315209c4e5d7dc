#!/usr/bin/env python3
"""`troupe simulate` as its users see it: output, exit codes, bad input. usage: program_test.py BIN"""
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

BIN = pathlib.Path(sys.argv.pop(1))
EXAMPLE = pathlib.Path("examples/simulation")
CLUSTER = ["--cluster", str(EXAMPLE / "cluster.yaml")]
TRACE = ["--trace", str(EXAMPLE / "trace.csv")]


def simulate(*words):
    return subprocess.run([BIN / "troupe", "simulate", *words], capture_output=True, text=True, timeout=100)


class Simulate(unittest.TestCase):
    def test_the_example(self):
        hashes = set()
        for policy in ("troupe", "torpor", "torpor"):
            done = simulate(*CLUSTER, *TRACE, "--policy", policy, "--seed", "7")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("2482 arrived = 2482 served", done.stdout)
            hashes.add(re.search(r"trace hash: (\w{16})", done.stdout).group(1))
        self.assertEqual(len(hashes), 2)

    def test_bad_input_says_where_and_exits_with_2(self):
        with tempfile.TemporaryDirectory() as folder:
            bad = pathlib.Path(folder) / "bad.csv"
            bad.write_text("function,m1\na,-1\n")
            for words, message in (
                ((*CLUSTER, "--trace", str(bad)), "bad.csv:2:3: found '-1'"),
                ((*CLUSTER, *TRACE, "--policy", "best"), "no preset policy is called 'best'"),
                ((*CLUSTER, "--trace", "nowhere.csv"), "no trace nowhere.csv"),
                (("--cluster", str(EXAMPLE / "trace.csv"), *TRACE), "trace.csv:1:1: expected 'key: value'"),
                ((*CLUSTER, "--generate", "wavy"), "expected poisson"),
                ((*CLUSTER, *TRACE, "--spread", "sideways"), "'sideways' is not a valid spread"),
                (CLUSTER, "--trace,--generate"),
                (TRACE, "--cluster is required"),
            ):
                done = simulate(*words)
                self.assertEqual(done.returncode, 2, (words, done.stdout, done.stderr))
                self.assertIn(message, done.stderr)

    def test_a_policy_that_does_not_exist_is_named_with_those_that_do(self):
        for slot, message in (
            ("--replica-policy", "no replicas policy is called 'best'; choose one of: forecast, demand, fixed"),
            ("--memory-policy", "policy is called 'best'; choose one of: "),
            ("--routing", "no routing policy is called 'best'; choose one of: "),
            ("--gpu", "no gpu policy is called 'best'; choose one of: resident-first, "),
        ):
            done = simulate(*CLUSTER, *TRACE, slot, "best")
            self.assertEqual(done.returncode, 2, (slot, done.stdout, done.stderr))
            self.assertIn(message, done.stderr)

    def test_faults_of_the_network(self):
        with tempfile.TemporaryDirectory() as folder:
            faults = pathlib.Path(folder) / "faults.yaml"
            faults.write_text("- {at: 2s, partition: [gateway-1, node-2], for: 3s}\n- {at: 9s, cut: [node-1, manager]}\n")
            runs = [simulate(*CLUSTER, *TRACE, "--faults", str(faults)) for _ in range(2)]
            self.assertEqual(runs[0].returncode, 0, runs[0].stderr)
            self.assertIn("network: 2 connections lost", runs[0].stdout)
            self.assertEqual(runs[0].stdout, runs[1].stdout)
            faults.write_text("- {at: 2s, cut: [node-1, node-9]}\n")
            done = simulate(*CLUSTER, *TRACE, "--faults", str(faults))
            self.assertEqual(done.returncode, 2)
            self.assertIn("faults.yaml:1:17: cut: found", done.stderr)

    def test_an_interrupt_prints_what_there_is(self):
        run = subprocess.Popen([BIN / "troupe", "simulate", *CLUSTER, "--generate", "poisson rate=20 length=60000s"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = run.stderr.readline()  # the simulation runs
        self.assertRegex(line, r"of .* in .*requests answered")
        run.send_signal(signal.SIGINT)
        out, _ = run.communicate(timeout=60)
        self.assertEqual(run.returncode, 130)
        self.assertIn("ended early", out)
        self.assertIn("trace hash", out)


if __name__ == "__main__":
    unittest.main()
