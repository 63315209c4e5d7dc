#!/usr/bin/python3
"""addresses: mapped: weights lie block by block, at one address per model on every GPU."""
import os
import pathlib
import re
import unittest

import numpy as np

from harness import E2eTest, Load, eventually, main
from harness.networks import dense

MODELS = 3


# Workers are not dumpable: their maps are for root alone (docs/security.md, Sandboxes).
@unittest.skipIf(os.geteuid() != 0, "only root may look into a worker")
class MappedAddresses(E2eTest):
    def test_each_model_has_one_address_on_both_gpus(self):
        # A load takes 40 ms; a request for the model does not wait for it meanwhile, but makes the model come to the other GPU.
        daemon = self.start("one", "all", gpus=2, gpu_memory="10MiB", addresses="mapped", link_bandwidth="100MB",
                            policy="torpor-random").wait_serving(gpus=2)
        rows = []
        for i in range(MODELS):
            onnx, weight = dense(4, seed=i)
            daemon.http.deploy(f"dense-{i}", onnx).good()
            rows.append(weight[0])
        x = np.zeros((1, weight.shape[0]), np.float32)
        x[0, 0] = 1
        turn = iter(range(1 << 30))

        def ask():
            i = next(turn) // 8 % MODELS  # both GPUs need the same model, and each has room for two of the three
            np.testing.assert_allclose(np.array(daemon.http.infer(f"dense-{i}", {"x": x})["y"]), rows[i], rtol=1e-4, atol=1e-5)

        def addresses(gpu):
            """The addresses at which models begin in this GPU's worker: the blocks of a model lie one after the other."""
            maps = pathlib.Path(f"/proc/{daemon.workers()[gpu]}/maps").read_text()
            blocks = [(int(begin, 16), int(end, 16))
                      for begin, end in re.findall(r"^([0-9a-f]+)-([0-9a-f]+) rw-s .*troupe-gpu", maps, re.M)]
            ends = {end for _, end in blocks}
            return {begin for begin, _ in blocks if 1 << 45 <= begin < 1 << 46 and begin not in ends}
        seen = {0: set(), 1: set()}

        def common():
            for gpu, known in seen.items():
                known.update(addresses(gpu))
            return seen[0] & seen[1]
        load = Load(ask, threads=4)
        eventually(lambda: len(common()) >= MODELS, "each model was on both GPUs, at the same address")
        load.stop()


if __name__ == "__main__":
    main()
