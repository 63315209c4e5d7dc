#!/usr/bin/python3
"""Trains the three networks of the ensemble and writes them, and the model that averages them, beside this file.

usage: train.py [--data digits.csv.gz] [--check]

The data, the held-out digits and the requirements are those of ../digits/train.py.
"""
import argparse
import pathlib
import sys

import numpy as np
import onnx
import torch
from onnx import helper

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "digits"))
import digits_data  # noqa: E402
import network  # noqa: E402

NETWORKS = {
    "cnn": ([("conv", 12), ("conv", 24), ("pool",), ("conv", 32), ("pool",), ("dense", 32), ("dense", 10)], 2),
    "mlp": ([("dense", 128), ("dense", 64), ("dense", 10)], 3),
    "wide": ([("conv", 32), ("pool",), ("conv", 32), ("dense", 48), ("dense", 10)], 4),
}


def average():
    node = helper.make_node("Mean", ["a", "b", "c"], ["probabilities"], "mean")
    return network.finish("average", [node], [(name, ["N", 10]) for name in "abc"], [])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if not arguments.check:
        torch.set_num_threads(1)
        (images, labels), _ = digits_data.split(*digits_data.load(arguments.data))
        for name, (layers, seed) in NETWORKS.items():
            trained = network.train(layers, digits_data.as_input(images), labels, seed)
            onnx.save(network.to_onnx(trained, f"digits-{name}"), str(HERE / f"{name}.onnx"))
        onnx.save(average(), str(HERE / "average.onnx"))

    images = digits_data.as_input(np.load(HERE.parent / "digits" / "heldout_images.npy"))
    labels = np.load(HERE.parent / "digits" / "heldout_labels.npy")
    outputs = [network.run(onnx.load(str(HERE / f"{name}.onnx")), image=images) for name in NETWORKS]
    for name, probabilities in zip(NETWORKS, outputs):
        print(f"{name}: {network.accuracy(probabilities, labels):.4f}")
    together = network.run(onnx.load(str(HERE / "average.onnx")), **dict(zip("abc", outputs)))
    print(f"average: {network.accuracy(together, labels):.4f}")


if __name__ == "__main__":
    main()
