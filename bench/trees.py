#!/usr/bin/python3
"""Time of one run of an ensemble of trees: this project's engine beside onnxruntime at equal threads, in alternating rounds.

usage: trees.py [--build DIR] [--rounds N] [--threads 1,2] [--rows 1,8,64,1024]

It needs onnxruntime's library, which comes in an npm package and which nothing else needs:

    npm install --ignore-scripts --prefix /tmp/oracle onnxruntime-node
    ORACLE_FOLDER=/tmp/oracle make bench-trees

Three ensembles of 30 features: `boosted`, 200 even trees of depth 6 for two classes, as XGBoost grows them; `leafwise`, 300
trees of 63 leaves at all depths for five classes with ways for missing values, as LightGBM does; `forest`, 100 trees of 800
leaves for a number, as a random forest's. Each split cuts what is left of its feature's range, so its outcome is open.

  run_us/ENSEMBLE/threads=N/rows=R     microseconds of a run
  trees_over_ort/geomean/threads=N     the geometric mean of the ratios
"""
import argparse
import math
import os
import pathlib
import subprocess
import sys

import numpy as np
from onnx import TensorProto, helper

from report import ROOT, Report

sys.path.insert(0, str(ROOT / "tests" / "conformance" / "opsets"))
import classic_trees  # noqa: E402

FEATURES = 30


def cut(random, box):
    feature = int(random.integers(FEATURES))
    low, high = box.get(feature, (0.0, 1.0))
    threshold = float(np.float32(low + (high - low) * random.uniform(0.2, 0.8)))
    share = (threshold - low) / (high - low)
    return feature, threshold, ({**box, feature: (low, threshold)}, share), ({**box, feature: (threshold, high)}, 1 - share)


def even(random, depth, box):
    if depth == 0:
        return float(random.normal(0, 0.05))
    feature, threshold, (left, _), (right, _) = cut(random, box)
    return classic_trees.Split(feature, threshold, False, even(random, depth - 1, left), even(random, depth - 1, right))


def ragged(random, leaves, power):
    """The leaf to split next is drawn by its share of the rows to this power."""
    root = {"box": {}, "share": 1.0}
    open_leaves = [root]
    for _ in range(leaves - 1):
        weights = np.array([leaf["share"] ** power for leaf in open_leaves])
        leaf = open_leaves.pop(int(random.choice(len(open_leaves), p=weights / weights.sum())))
        feature, threshold, *sides = cut(random, leaf["box"])
        leaf["split"] = (feature, threshold, [{"box": box, "share": leaf["share"] * share} for box, share in sides])
        open_leaves += leaf["split"][2]

    def tree(leaf):
        if "split" not in leaf:
            return float(random.normal(0, 0.05))
        feature, threshold, (left, right) = leaf["split"]
        return classic_trees.Split(feature, threshold, bool(random.integers(2)), tree(left), tree(right))
    return tree(root)


def ensembles():
    random = np.random.default_rng(1)
    yield "boosted", [even(random, 6, {}) for _ in range(200)], 2, "BRANCH_LT", False
    yield "leafwise", [ragged(random, 63, 0.5) for _ in range(300)], 5, "BRANCH_LEQ", True
    yield "forest", [ragged(random, 800, 0.7) for _ in range(100)], 1, "BRANCH_LEQ", False


def model(trees, classes, mode, missing):
    ids = [i % classes if classes > 2 else 0 for i in range(len(trees))]
    lists = classic_trees.attributes(trees, "target" if classes == 1 else "class", ids, mode, missing, breadth_first=True)
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", classes])]
    if classes == 1:
        node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1, **lists)
    else:
        node = helper.make_node("TreeEnsembleClassifier", ["x"], ["label", "y"], domain="ai.onnx.ml",
                                classlabels_int64s=list(range(classes)), post_transform="LOGISTIC" if classes == 2 else "SOFTMAX",
                                **lists)
        outputs.append(helper.make_tensor_value_info("label", TensorProto.INT64, ["N"]))
    graph = helper.make_graph([node], "trees", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", FEATURES])], outputs)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15), helper.make_opsetid("ai.onnx.ml", 3)])
    made.ir_version = 8
    return made.SerializeToString()


def library():
    folder = pathlib.Path(os.environ.get("ORACLE_FOLDER", "/tmp/oracle"))
    found = sorted(folder.glob("node_modules/onnxruntime-node/bin/napi-v*/linux/*/libonnxruntime.so*"))
    found = [path for path in found if path.parent.name == {"x86_64": "x64", "aarch64": "arm64"}.get(os.uname().machine)]
    if not found:
        raise SystemExit(f"trees.py: no onnxruntime below {folder}; ORACLE_FOLDER names the folder that it was installed in\n"
                         f"{__doc__}")
    return found[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rows", default="1,8,64,1024")
    arguments = parser.parse_args()
    yardstick = library()
    report = Report("trees")
    folder = ROOT / "build" / "bench" / "models"
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, *parts in ensembles():
        files.append((name, folder / f"trees_{name}.onnx"))
        files[-1][1].write_bytes(model(*parts))
    for threads in map(int, arguments.threads.split(",")):
        logs = []
        for name, file in files:
            for rows in arguments.rows.split(","):
                command = [arguments.build / "bin" / "trees_bench", file, rows, FEATURES, threads, arguments.rounds, yardstick]
                told = subprocess.run(list(map(str, command)), check=True, text=True, stdout=subprocess.PIPE,
                                      env=dict(os.environ, OMP_NUM_THREADS=str(threads), OMP_WAIT_POLICY="passive")).stdout
                pairs = [tuple(map(float, line.split()[1:])) for line in told.splitlines() if line.startswith("run_us ")]
                report.add(f"run_us/{name}/threads={threads}/rows={rows}", [a for a, _ in pairs], "us", "onnxruntime",
                           [b for _, b in pairs])
                logs.append(np.median([math.log(a / b) for a, b in pairs]))
        report.add(f"trees_over_ort/geomean/threads={threads}", [math.exp(np.mean(logs))], "x")
    report.write()


if __name__ == "__main__":
    main()
