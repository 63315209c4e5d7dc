#!/usr/bin/python3
"""StreamBox and its baselines as presets of the daemon: each serves a workflow rightly, with the workers that it names."""
import subprocess

from harness import E2eTest, eventually, main
from harness.client import infer_binary
from harness.daemon import BIN
from harness.networks import scale
from harness.shell import Shell
from harness.workflows import chain, pattern

X = pattern(256, seed=1)  # 1 MiB


class Presets(E2eTest):
    def serve(self, policy):
        daemon = self.start("one", "all", policy=policy, gpu_memory="512MiB").wait_serving()
        self.shell = Shell(daemon.address("manager"), self.directory)
        http = daemon.http
        for name, factor in (("double", 2), ("triple", 3)):
            http.deploy(name, scale(factor, 1024)).good()
        http.call("POST", "/v2/troupe/workflows", chain("chain", ["double", "triple"])).good()
        eventually(lambda: http.get("/v2/models/chain/ready").code == 200, "the workflow can be called")
        for _ in range(2):
            shape, data = infer_binary(http, "chain", {"x": X})["y"]
            self.assertEqual((shape, data), ([256, 1024], (6 * X).tobytes()))
        return self.shell.json("gpu", "show", "one/0")["gpus"][0]["runtimes"]

    def served(self, runtimes):
        return {runtime["key"] for runtime in runtimes if runtime.get("key")}

    def test_infless_has_a_process_for_each_function(self):
        runtimes = self.serve("infless")
        self.assertEqual(len(runtimes), 8)
        self.assertEqual(len(self.served(runtimes)), 2)

    def test_streambox_has_one_for_each_user(self):
        runtimes = self.serve("streambox")
        self.assertEqual(len(runtimes), 3)
        self.assertEqual(len(self.served(runtimes)), 1)

    def test_stream_only_has_one_for_each_user(self):
        runtimes = self.serve("stream-only")
        self.assertEqual(len(runtimes), 3)
        self.assertEqual(len(self.served(runtimes)), 1)

    def test_torpor_orders_functions_by_their_slos_at_the_gateway_and_at_the_node(self):
        self.serve("torpor")
        for words, heading in ((("gpu", "list"), "host region of one"), (("gpu", "show", "one/0"), "work "), (("slo",), "ATTAINED")):
            shown = self.shell.run(*words).stdout
            self.assertIn(heading, shown)
            self.assertIn("alpha      1 at one", shown)

    def test_astraea_is_refused_with_the_reason(self):
        done = subprocess.run([BIN / "trouped", "--policy", "astraea"], capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("'astraea' hands results from one function's process to the next by CUDA IPC", done.stderr)


if __name__ == "__main__":
    main()
