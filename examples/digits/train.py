#!/usr/bin/python3
"""Trains the digits network and writes digits.onnx, the held-out digits and ACCURACY.md beside this file.

usage: train.py [--data digits.csv.gz] [--output DIR] [--check]

Without --data, Debian's python3-sklearn package is downloaded (not installed) and its digits.csv.gz is read. --check
trains nothing: it prints the accuracy of the digits.onnx and held-out digits that are there, by numpy. Needs Debian's
python3-torch (not for --check, apart from the import), python3-numpy and python3-onnx. Takes about 20 s on one core.
"""
import argparse
import pathlib

import numpy as np
import onnx
import torch

import digits_data
import network

LAYERS = [("conv", 16), ("conv", 32), ("pool",), ("conv", 48), ("pool",), ("dense", 48), ("dense", 10)]
SEED = 1


def confusions(predicted, labels):
    pairs = [f"{want} read as {got}" for want, got in zip(labels, predicted) if want != got]
    return ", ".join(sorted(pairs)) or "none"


def check(folder):
    images = np.load(folder / "heldout_images.npy")
    labels = np.load(folder / "heldout_labels.npy")
    model = onnx.load(str(folder / "digits.onnx"))
    probabilities = network.run(model, image=digits_data.as_input(images))
    return network.accuracy(probabilities, labels), confusions(probabilities.argmax(axis=1), labels)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    folder = arguments.output
    if not arguments.check:
        torch.set_num_threads(1)  # the order of sums, and so the result, depends on the number of threads
        (images, labels), held_out = digits_data.split(*digits_data.load(arguments.data))
        trained = network.train(LAYERS, digits_data.as_input(images), labels, SEED)
        onnx.save(network.to_onnx(trained, "digits"), str(folder / "digits.onnx"))
        np.save(folder / "heldout_images.npy", held_out[0])
        np.save(folder / "heldout_labels.npy", held_out[1])
    reached, wrong = check(folder)
    size = (folder / "digits.onnx").stat().st_size
    line = f"{reached:.4f} ({round(reached * 360)} of 360 held-out digits); wrong: {wrong}"
    print(line)
    if not arguments.check:
        (folder / "ACCURACY.md").write_text(
            f"# Accuracy of digits.onnx\n{line}.\n\nWritten by train.py (seed {SEED}, PyTorch {torch.__version__}); the "
            f"file has {size:,} bytes. `train.py --check` measures it again.\n")


if __name__ == "__main__":
    main()
