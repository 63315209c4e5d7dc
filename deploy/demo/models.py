"""The functions that the demo deploys, its requests, and the right answers."""
import pathlib
import subprocess
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
EXAMPLES = ROOT / "examples"
RESNETS, PIXELS = 24, 64  # together half as large again as the GPUs' memory
RELATIVE, ABSOLUTE = 1e-3, 1e-5  # an answer further from its reference than this is wrong


class Function:
    """A function or workflow that is called: `share` of the load, `inputs` to choose from, `references` to compare.
    Functions of one `family` share a row of the table."""

    def __init__(self, name, share, inputs, deadline_ms=200, family=None):
        self.name, self.share, self.inputs, self.deadline_ms = name, share, inputs, deadline_ms
        self.family = family or name
        self.references = []

    def is_right(self, index, outputs):
        wanted = self.references[index]
        return outputs.keys() == wanted.keys() and all(
            np.allclose(outputs[name], wanted[name], RELATIVE, ABSOLUTE) for name in wanted)


def heldout():
    images = np.load(EXAMPLES / "digits" / "heldout_images.npy").astype(np.float32).reshape(-1, 1, 8, 8) / 16
    return images, np.load(EXAMPLES / "digits" / "heldout_labels.npy")


def make_networks(directory):
    """Networks with random weights; {function: ONNX file}."""
    script = [sys.executable, str(EXAMPLES / "make_models.py"), "--output", str(directory)]
    for options in (["--variants", str(RESNETS), "--size", str(PIXELS), "resnet8"], ["mlp", "bert-tiny", "detector"]):
        subprocess.run(script + options, check=True, stdout=subprocess.DEVNULL)
    return {path.stem: path for path in sorted(directory.glob("*.onnx"))}


def onnx_files(directory):
    """Everything that is deployed; {function: ONNX file}."""
    ensemble = EXAMPLES / "ensemble"
    return {"digits": EXAMPLES / "digits" / "digits.onnx", "average": ensemble / "average.onnx",
            **{f"digits-{name}": ensemble / f"{name}.onnx" for name in ("cnn", "mlp", "wide")},
            **make_networks(directory)}


def functions():
    """The functions that the load calls: a few often, many rarely, as it is in practice."""
    random = np.random.default_rng(7)

    def images(count, *shape):
        return [random.random((1, *shape), np.float32) for _ in range(count)]

    digits = [{"image": image[None]} for image in heldout()[0][:24]]
    ids = [{"input_ids": random.integers(0, 1000, (1, 16)), "attention_mask": np.ones((1, 16), np.int64)}
           for _ in range(4)]
    return [Function("digits", 8, digits), Function("mlp", 4, [{"x": x} for x in images(4, 64)]),
            Function("bert-tiny", 3, ids), Function("ensemble", 2, digits[:8], 500),
            Function("detector", 2, [{"image": x} for x in images(4, 3, 128, 128)]),
            *(Function(f"resnet8-{i}", 1, [{"data": x} for x in images(3, 3, PIXELS, PIXELS)], 400,
                       f"resnet8-0..{RESNETS - 1}")
              for i in range(RESNETS))]


def independent_digits():
    """What numpy alone computes for digits and the ensemble from the same files: {name: probabilities of all}."""
    sys.path.insert(0, str(EXAMPLES / "digits"))
    import network
    import onnx
    images, _ = heldout()
    networks = [onnx.load(str(EXAMPLES / "ensemble" / f"{name}.onnx")) for name in ("cnn", "mlp", "wide")]
    digits = network.run(onnx.load(str(EXAMPLES / "digits" / "digits.onnx")), image=images)
    return {"digits": digits, "ensemble": sum(network.run(model, image=images) for model in networks) / len(networks)}
