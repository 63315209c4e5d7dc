#!/usr/bin/env python3
"""Classifies the held-out digits over HTTP (Open Inference Protocol) and prints the accuracy. Plain Python, no packages.

usage: client.py [--url http://127.0.0.1:8000] [--model digits] [--batch 36] [--at-least 0.97]

--model may as well name a workflow with the same input and output, such as ensemble. Exit code 1: less accurate than
--at-least; 2: the server could not be asked, or answered something else.
"""
import argparse
import ast
import json
import pathlib
import sys
import time
import urllib.error
import urllib.request

HELD_OUT = pathlib.Path(__file__).parent / "digits"


def read_npy(path):
    """(shape, bytes) of a uint8 array that numpy saved."""
    data = path.read_bytes()
    if data[:8] != b"\x93NUMPY\x01\x00":
        raise ValueError(f"{path} is not an .npy file of version 1")
    begin = 10 + int.from_bytes(data[8:10], "little")
    header = ast.literal_eval(data[10:begin].decode("latin1"))
    if header["descr"] != "|u1" or header["fortran_order"]:
        raise ValueError(f"{path} does not hold plain bytes")
    return header["shape"], data[begin:]


def infer(url, model, images, tries=4):
    """images: a list of 64 floats each. Returns the digit for each; honours Retry-After."""
    body = json.dumps({"inputs": [{"name": "image", "datatype": "FP32", "shape": [len(images), 1, 8, 8],
                                   "data": [pixel for image in images for pixel in image]}],
                       "outputs": [{"name": "probabilities"}]}).encode()
    request = urllib.request.Request(f"{url}/v2/models/{model}/infer", data=body,
                                     headers={"Content-Type": "application/json"})
    while True:
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                answer = json.load(response)
            break
        except urllib.error.HTTPError as error:
            tries -= 1
            if error.code != 503 or tries == 0:
                raise
            time.sleep(float(error.headers.get("Retry-After", "1")))
    output = answer["outputs"][0]
    if output["name"] != "probabilities" or output["shape"] != [len(images), 10]:
        raise ValueError(f"expected probabilities of shape [{len(images)}, 10], got {output['name']} {output['shape']}")
    rows = [output["data"][i * 10:i * 10 + 10] for i in range(len(images))]
    return [row.index(max(row)) for row in rows]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--model", default="digits")
    parser.add_argument("--batch", type=int, default=36)
    parser.add_argument("--at-least", type=float, default=0.97)
    arguments = parser.parse_args()

    (count, _, _), pixels = read_npy(HELD_OUT / "heldout_images.npy")
    _, labels = read_npy(HELD_OUT / "heldout_labels.npy")
    images = [[pixel / 16 for pixel in pixels[i * 64:i * 64 + 64]] for i in range(count)]
    right = 0
    try:
        for first in range(0, count, arguments.batch):
            chosen = images[first:first + arguments.batch]
            digits = infer(arguments.url.rstrip("/"), arguments.model, chosen)
            right += sum(digit == label for digit, label in zip(digits, labels[first:first + len(chosen)]))
    except urllib.error.HTTPError as error:
        print(f"client.py: {arguments.model}: HTTP {error.code}: {error.read().decode(errors='replace')}", file=sys.stderr)
        return 2
    except (OSError, ValueError, KeyError, IndexError) as error:
        print(f"client.py: {arguments.url}: {error}", file=sys.stderr)
        return 2
    print(f"accuracy={right / count:.4f} ({right} of {count})")
    return 0 if right / count >= arguments.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
