#!/usr/bin/python3
"""The shell against a real cluster of one process: every verb, what programs read, exit codes, and a person at a
terminal."""
import json
import os
import pathlib
import re
import signal
import time

import numpy as np
from onnx import helper

from harness import E2eTest, eventually, main
from harness.networks import EXAMPLES, digits, ensemble, scale, serialize, value
from harness.shell import Shell


def catches_interrupts(pid):
    caught = re.search(r"^SigCgt:\s*(\w+)$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)
    return int(caught.group(1), 16) >> (signal.SIGINT - 1) & 1


class ShellTest(E2eTest):
    def setUp(self):
        super().setUp()
        self.daemon = self.start("one", "all", gpus=2, **self.options()).wait_serving(gpus=2)
        self.shell = Shell(self.daemon.address("manager"), self.directory)
        self.http = self.daemon.http

    def options(self):
        return {}

    def file(self, name, content):
        path = self.directory / name
        path.write_bytes(content) if isinstance(content, bytes) else path.write_text(content)
        return path

    def npy(self, name, array):
        np.save(self.directory / name, array)
        return self.directory / name

    def deploy_double(self):
        self.shell.run("function", "deploy", "double", self.file("double.onnx", scale(2)))

    def await_gpus(self):
        eventually(lambda: "GPUs 2 of 2 ready" in self.shell.text("cluster", "status"), "the manager heard of both GPUs")

    def kinds(self):
        return [event["kind"] for event in self.shell.json("events", "--limit", 0)["events"]]

    def one_terminal(self, *words):
        terminal = self.shell.terminal(*words)
        self.addCleanup(terminal.close)
        return terminal


class Functions(ShellTest):
    def test_a_functions_life(self):
        onnx = EXAMPLES / "digits" / "digits.onnx"
        deployed = self.shell.text("function", "deploy", "digits", onnx, "--deadline", "50ms", "--percentile", 95,
                                   "--tenant", "school")
        self.assertIn("digits version 1", deployed)
        self.assertIn("image FP32 [-1,1,8,8]", deployed)
        self.assertIn("served", self.shell.text("function", "list"))
        shown = self.shell.text("function", "show", "digits")
        for part in ("50 ms at 95 %", "school", "probabilities", "adopted by one"):
            self.assertIn(part, shown)
        record = self.shell.json("function", "show", "digits")["functions"][0]["record"]
        self.assertEqual((record["key"]["name"], record["key"]["version"], record["loaded"]), ("digits", "1", True))

        _, images, labels = digits()
        one = self.npy("one.npy", images[:1])
        self.assertIn("digits version 1 on one/", self.shell.text("infer", "digits", "--input", one))
        answer = self.shell.json("infer", "digits", "--input", f"image={one}",
                                 "--output", f"probabilities={self.directory / 'out.npy'}")
        self.assertEqual(answer["outputs"][0]["shape"], [1, 10])
        self.assertEqual(int(np.argmax(answer["outputs"][0]["data"])), int(labels[0]))
        np.testing.assert_allclose(np.load(self.directory / "out.npy").reshape(-1), answer["outputs"][0]["data"], rtol=1e-6)
        # The image as JSON: with type and shape, nested, and flat for a model with a free batch dimension.
        for name, value in {"typed": {"datatype": "FP32", "shape": [1, 1, 8, 8], "data": images[0].reshape(-1).tolist()},
                            "nested": images[:1].tolist(), "flat": images[0].reshape(-1).tolist()}.items():
            given = self.shell.json("infer", "digits", "--input", self.file(f"{name}.json", json.dumps(value)))
            self.assertEqual(int(np.argmax(given["outputs"][0]["data"])), int(labels[0]), name)

        self.assertIn("version 2", self.shell.text("function", "deploy", "digits", onnx))
        self.shell.run("function", "unload", "digits", "--version", 2)
        self.assertIn("unloaded", self.shell.text("function", "list"))
        self.shell.run("function", "load", "digits", "--version", 2)
        self.shell.run("function", "remove", "digits")
        self.shell.run("function", "remove", "digits", "--version", 1)
        self.assertEqual(self.shell.json("function", "list")["functions"], [])
        self.assertIn("digits", self.shell.error("function", "show", "digits", code=3))

    def test_large_tensors_travel_with_the_request_and_the_answer(self):
        self.deploy_double()
        for rows in (1 << 13, 1 << 20):  # 128 KiB: beyond a message to a worker; 16 MiB: the most that a shell sends
            x = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
            out = self.directory / f"{rows}.npy"
            self.shell.run("infer", "double", "--input", self.npy(f"x{rows}.npy", x), "--output", f"y={out}")
            np.testing.assert_array_equal(np.load(out), 2 * x)
        beyond = self.npy("beyond.npy", np.zeros(((1 << 20) + 1, 4), np.float32))
        self.assertIn("16 MiB", self.shell.error("infer", "double", "--input", beyond, code=2))

    def test_exit_codes(self):
        self.deploy_double()
        x = self.npy("x.npy", np.ones((2, 4), np.float32))
        wrong = self.npy("wrong.npy", np.ones((2, 5), np.float32))
        not_onnx = self.file("not.onnx", b"this is not a model")
        refused = self.shell.error("function", "deploy", "broken", not_onnx, code=2)
        self.assertIn("function deploy broken", refused)
        # Exit code 2: the cluster was not asked.
        self.assertIn("known here", self.shell.error("function", "publish", code=2))
        self.assertIn("4", self.shell.error("infer", "double", "--input", wrong, code=2))
        self.assertIn("nowhere.npy", self.shell.error("infer", "double", "--input", "nowhere.npy", code=2))
        self.shell.error("kill", "gpu", "one", code=2)
        # Exit code 3: the named thing does not exist.
        for words in (("infer", "absent", "--input", x), ("function", "remove", "absent"), ("node", "drain", "absent"),
                      ("gpu", "show", "one/7"), ("kill", "gpu", "one/7", "--yes"), ("kill", "gpu", "two/0", "--yes"),
                      ("workflow", "show", "absent"), ("workflow", "status", "absent"), ("workflow", "cancel", "absent"),
                      ("workflow", "remove", "absent")):
            self.shell.error(*words, code=3)
        # With --json a refusal is an object that programs can read.
        failed = self.shell.json("function", "show", "absent", code=3)
        self.assertEqual((failed["code"], failed["status"]), (5, "NOT_FOUND"))
        self.assertIn("absent", failed["message"])
        # Exit code 4: no manager can be reached; the line says what to do.
        away = self.shell.error("--manager", "127.0.0.1:1", "cluster", "status", code=4)
        self.assertIn("--manager", away)
        # The shell does not wait longer than it was told to.
        away = self.shell.error("--manager", "127.0.0.1:1", "--timeout", "300ms", "cluster", "status", code=4)
        self.assertIn("no cluster manager answers at 127.0.0.1:1 within 300 ms: is trouped running there? Name", away)

    def test_a_file_is_judged_without_a_cluster(self):
        away = ("--manager", "127.0.0.1:1", "function", "check")
        good = self.file("double.onnx", scale(2))
        text = self.shell.run(*away, good).stdout
        for words in ("can be deployed: 1 step", "inputs     x  FP32 [-1,4]", "outputs    y  FP32 [-1,4]", "operators  Mul 1"):
            self.assertIn(words, text)
        self.assertIn("CUDA GPUs  every step has a kernel", text)
        self.assertEqual(self.shell.json(*away, good)["operators"], {"Mul": 1})
        self.assertEqual(self.shell.json(*away, good)["cuda_refused"], [])
        # What only a CUDA GPU refuses is told, and is no error: virtual GPUs run it.
        hard = self.file("hard.onnx", serialize([helper.make_node("Hardmax", ["x"], ["y"], "last")], [value("x", 1, 4)], [value("y", 1, 4)]))
        text = self.shell.run(*away, hard).stdout
        for words in ("can be deployed: 1 step", "CUDA GPUs  would refuse it: Hardmax 'last': no kernel of the GPU covers this operator",
                      "serve it on virtual GPUs"):
            self.assertIn(words, text)
        unknown = self.file("unknown.onnx", serialize([helper.make_node("Nonsense", ["x"], ["y"], "here")], [value("x", 1)], [value("y", 1)]))
        for file, why in ((self.file("not.onnx", b"this is not a model"), "not a valid ONNX file"), ("absent.onnx", "cannot read"),
                          (unknown, "Nonsense (1 node, 'here')")):
            refused = self.shell.error(*away, file, code=2)
            self.assertIn("would be refused: ", refused)
            self.assertIn(why, refused)

    def test_a_script_stops_at_the_first_that_fails(self):
        self.deploy_double()
        done = self.shell.run("shell", stdin="# a comment\nfunction list\n\nfunction show absent\ncluster status\n", code=3)
        self.assertIn("double", done.stdout)
        self.assertNotIn("revision", done.stdout)
        self.assertIn("quit", self.shell.run("shell", stdin="help shell\nquit\nnonsense\n").stdout + "quit")


class Workflows(ShellTest):
    def test_a_workflow_runs(self):
        functions, yaml = ensemble()
        for name, onnx in functions.items():
            self.shell.run("function", "deploy", name, self.file(f"{name}.onnx", onnx))
        submitted = self.shell.text("workflow", "submit", self.file("ensemble.yaml", yaml))
        self.assertIn("ensemble version 1", submitted)
        self.assertIn("ensemble", self.shell.text("workflow", "list"))
        self.assertIn("digits-mlp", self.shell.text("workflow", "show", "ensemble"))
        _, images, labels = digits()
        answer = self.shell.json("workflow", "run", "ensemble", "--input", self.npy("one.npy", images[:1]))
        self.assertEqual(int(np.argmax(answer["outputs"][0]["data"])), int(labels[0]))
        run = eventually(lambda: [run for run in self.shell.json("workflow", "runs")["runs"]
                                  if run["state"] == "RUN_SUCCEEDED"], "the run is kept as succeeded")[0]
        name = run["start"]["run"]
        self.assertEqual((run["start"]["workflow"], len(run["steps"])), ("ensemble", 4))
        self.assertIn("succeeded", self.shell.text("workflow", "runs", "ensemble"))
        self.assertIn("average", self.shell.text("workflow", "status", name))
        # The run is the same over HTTP.
        listed = self.http.get("/v2/troupe/runs?workflow=ensemble").good().json
        self.assertEqual([(entry["start"]["run"], entry["state"]) for entry in listed], [(name, "RUN_SUCCEEDED")])
        shown = self.http.get(f"/v2/troupe/runs/{name}").good().json
        self.assertEqual(shown["outputs"][0]["spec"]["name"], "probabilities")
        self.assertEqual(self.http.get("/v2/troupe/runs/absent").code, 404)
        # The run has ended: cancelling comes too late, and says so.
        self.assertIn("ended", self.shell.error("workflow", "cancel", name, code=1))
        self.shell.run("workflow", "remove", "ensemble")
        self.assertEqual(self.shell.json("workflow", "list")["workflows"], [])


class Interference(ShellTest):
    """Stops the workers until the test lets them go on: their runs cannot end before."""

    def options(self):
        return {"hang": "10m", "measure": "requests"}

    def setUp(self):
        super().setUp()
        self.deploy_double()
        self.await_gpus()  # a worker that is stopped before it is ready is replaced
        self.x = self.npy("x.npy", np.ones((1, 4), np.float32))
        self.workers = self.daemon.workers().values()
        for pid in self.workers:
            os.kill(pid, signal.SIGSTOP)
        self.addCleanup(self.go_on)

    def go_on(self):
        for pid in self.workers:
            os.kill(pid, signal.SIGCONT)

    def waiting(self):
        """Requests that gateways and nodes have and have not answered."""
        return sum(int(load["queued"]) + int(load["running"]) for load in self.http.loads().values())

    def test_a_running_workflow_is_cancelled(self):
        yaml = "name: two\ninputs:\n  x: {type: FP32, shape: [1, 4]}\nsteps:\n" \
               "  - {name: a, function: double, inputs: {x: x}}\n  - {name: b, function: double, inputs: {x: x}}\n" \
               "outputs:\n  y: b.y\n"
        self.shell.run("workflow", "submit", self.file("two.yaml", yaml))
        running = self.shell.start("workflow", "run", "two", "--input", self.x)
        try:
            name = eventually(lambda: [run["start"]["run"] for run in self.shell.json("workflow", "runs")["runs"]
                                       if run["state"] == "RUN_RUNNING"], "the run is running")[0]
            self.assertIn("cancelled", self.shell.text("workflow", "cancel", name))
            self.go_on()
            out, error = running.communicate(timeout=60)
            self.assertEqual(running.returncode, 1, out + error)
            self.assertIn("cancelled", error)
        finally:
            running.kill()
            running.wait()
        self.assertEqual(self.shell.json("workflow", "status", name)["runs"][0]["state"], "RUN_CANCELLED")

    def test_an_answer_that_takes_long_comes_all_the_same(self):
        """The shell waits for longer than a connection may be silent."""
        asking = self.shell.start("infer", "double", "--input", self.x)
        try:
            eventually(lambda: asking.poll() is not None or self.waiting(), "the request is at the node")
            since = time.monotonic()
            eventually(lambda: asking.poll() is not None or time.monotonic() - since > 5, "five seconds later")
            self.assertIsNone(asking.poll(), "the shell ended before its answer")
            self.go_on()
            out, error = asking.communicate(timeout=60)
        finally:
            asking.kill()
            asking.wait()
        self.assertEqual(asking.returncode, 0, out + error)
        self.assertNotIn("attempts", out)

    def test_an_interrupted_command_says_so(self):
        asking = self.shell.start("infer", "double", "--input", self.x)
        try:
            eventually(lambda: asking.poll() is not None or self.waiting(), "the request is at the node")
            if asking.poll() is not None:
                self.fail(f"the shell ended by itself: {asking.communicate()}")
            eventually(lambda: catches_interrupts(asking.pid), "the command looks after interrupts")
            asking.send_signal(signal.SIGINT)
            out, error = asking.communicate(timeout=60)
        finally:
            asking.kill()
            asking.wait()
        self.assertEqual(asking.returncode, 130, out + error)
        self.assertIn("interrupted", error)


class ClusterVerbs(ShellTest):
    def test_looking_on(self):
        self.deploy_double()
        status = self.shell.json("cluster", "status")["status"]
        self.assertEqual(sorted(entry["member"]["name"] for entry in status["members"]), ["one", "one-gateway"])
        self.await_gpus()
        nodes = self.shell.json("node", "list")["status"]["members"]
        self.assertEqual([node["member"]["name"] for node in nodes], ["one"])
        self.assertIn("one", self.shell.text("node", "list"))
        self.assertEqual(len(self.shell.json("gpu", "list")["gpus"]), 2)
        self.assertIn("one/1", self.shell.text("gpu", "list"))
        self.shell.run("infer", "double", "--input", self.npy("x.npy", np.ones((2, 4), np.float32)))
        eventually(lambda: "double version 1" in self.shell.text("gpu", "show", "one/0") +
                   self.shell.text("gpu", "show", "one/1"), "the function is resident")
        self.assertIn("double", self.shell.text("top", "--count", 1))
        self.assertEqual(len(self.shell.json("top", "--count", 1)["gpus"]), 2)
        kinds = self.kinds()
        for kind in ("member-joined", "function-deployed", "model-adopted"):
            self.assertIn(kind, kinds)
        self.assertIn("function-deployed", self.shell.text("events"))
        self.assertNotIn("swap", self.shell.text("events"))
        eventually(lambda: "'double' from host" in self.shell.text("events", "--kind", "swap"), "the swap is told of")

    def test_a_killed_gpu_tells_how_it_came_back(self):
        self.deploy_double()
        before = self.daemon.workers()
        self.assertIn("nothing was killed", self.shell.run("kill", "gpu", "one/1", code=1).stderr)
        self.assertEqual(self.daemon.workers(), before)
        self.assertIn("one/1", self.shell.text("kill", "gpu", "one/1", "--yes"))
        events = eventually(lambda: [event for event in self.shell.json("events", "--limit", 0)["events"]
                                     if event["kind"] == "worker-ready" and "back after" in event["message"]],
                            "the events tell of the worker's return")
        self.assertIn("GPU 1", events[0]["message"])
        kinds = self.kinds()
        order = [kinds.index("gpu-killed"), kinds.index("worker-down"), kinds.index(events[0]["kind"], kinds.index("worker-down"))]
        self.assertEqual(order, sorted(order), kinds)
        everything = self.shell.json("events", "--kind", "all", "--limit", 0)["events"]
        self.assertEqual([int(event["sequence"]) for event in everything], list(range(1, len(everything) + 1)))
        self.assertEqual({event["member"] for event in everything if event["kind"].startswith("worker-")}, {"one"})
        after = self.daemon.workers()
        self.assertEqual((after[0], after[1] == before[1]), (before[0], False))

    def test_a_drained_node_takes_nothing_new(self):
        self.deploy_double()
        x = self.npy("x.npy", np.ones((2, 4), np.float32))
        self.assertIn("takes no new requests", self.shell.text("node", "drain", "one"))
        self.assertIn("draining", self.shell.text("node", "list"))
        self.shell.error("infer", "double", "--input", x, "--timeout", "500ms", code=5)
        self.shell.run("node", "drain", "one", "--undo")
        self.shell.run("infer", "double", "--input", x)

    def test_following_events_ends_with_an_interrupt(self):
        following = self.shell.start("events", "--follow", "--json")
        try:
            first = json.loads(following.stdout.readline())
            self.assertEqual(int(first["sequence"]), 1)
            self.deploy_double()
            line = ""
            while "function-deployed" not in line:
                line = following.stdout.readline()
                self.assertTrue(line, "the shell ended")
            following.send_signal(signal.SIGINT)
            self.assertEqual(following.wait(timeout=60), 0)
        finally:
            following.kill()
            following.wait()
            following.stdout.close()
            following.stderr.close()


class AtATerminal(ShellTest):
    def test_kill_asks_first(self):
        before = self.daemon.workers()
        terminal = self.one_terminal("kill", "gpu", "one/0")
        terminal.expect(r"one/0\?.*\[y/N\] ")
        terminal.type("n\n")
        terminal.expect("nothing was killed")
        self.assertEqual(terminal.finish(), 1)
        self.assertEqual(self.daemon.workers(), before)
        terminal = self.one_terminal("kill", "gpu", "one/0")
        terminal.expect(r"\[y/N\] ")
        terminal.type("y\n")
        terminal.expect("being killed")
        self.assertEqual(terminal.finish(), 0)

    def test_completion_history_help_and_keys(self):
        self.deploy_double()
        terminal = self.one_terminal("shell")
        terminal.expect("troupe> ")
        terminal.type("function sh\t")
        terminal.expect("ow ")  # the terminal is told what changes
        terminal.type("dou\t")
        terminal.expect("ble ")
        terminal.type("\n")
        terminal.expect("objective")
        terminal.expect("troupe> ")
        # Ctrl-C drops the line, and the shell stays.
        terminal.type("node dr\x03")
        terminal.expect(r"\^C\r\n")
        terminal.expect("troupe> ")
        terminal.type("help node drain\n")
        terminal.expect("--undo")
        terminal.expect("troupe> ")
        # A command that fails does not end the shell either.
        terminal.type("function show absent\n")
        terminal.expect("there is no function 'absent'")
        terminal.expect("troupe> ")
        # The key Up brings the line before.
        terminal.type("\x1b[A\n")
        terminal.expect("there is no function 'absent'")
        terminal.expect("troupe> ")
        # Ctrl-C in top returns to the prompt, and so does q.
        for leave in ("\x03", "q"):
            terminal.type("top\n")
            terminal.expect("GPUs 2 of 2 ready")
            terminal.type(leave)
            terminal.expect("troupe> ")
        terminal.type("cluster status\n")
        terminal.expect("revision")
        terminal.expect("troupe> ")
        terminal.type("\x04")
        self.assertEqual(terminal.finish(), 0)
        self.assertIn("help node drain", (self.directory / ".troupe_history").read_text().replace("\\040", " "))
        # The next shell knows the lines of the last one.
        terminal = self.one_terminal("shell")
        terminal.expect("troupe> ")
        terminal.type("\x12node dr")
        terminal.expect("help node drain")
        terminal.type("\x03\x04")


if __name__ == "__main__":
    main()
