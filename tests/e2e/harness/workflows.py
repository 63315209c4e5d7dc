"""Workflows of functions that `scale` their input `x` to `y`, and tensors for them."""
import numpy as np


def chain(name, functions, width=1024):
    """The document of a workflow that calls the functions one after the other; its tensors have rows of so many floats."""
    source, lines = "x", []
    for number, function in enumerate(functions, 1):
        lines.append(f"  - {{name: step-{number}, function: {function}, inputs: {{x: {source}}}}}")
        source = f"step-{number}.y"
    steps = "\n".join(lines)
    return f"name: {name}\ninputs:\n  x: {{type: FP32, shape: [-1, {width}]}}\nsteps:\n{steps}\noutputs: {{y: {source}}}\n".encode()


def pattern(rows, seed=0, width=1024):
    """Rows of so many floats, by default 4 KiB each."""
    return np.random.default_rng(seed).standard_normal((rows, width), dtype=np.float32)
