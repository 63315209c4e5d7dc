"""The 1,797 handwritten digits of scikit-learn's digits.csv.gz, and how they are split here."""
import gzip
import pathlib
import subprocess
import tempfile

import numpy as np

HELD_OUT = 360
IN_PACKAGE = "usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz"


def load(path=None):
    """(images [1797, 8, 8] uint8 of 0..16, labels [1797] uint8), in the order of the file."""
    if path is not None:
        return _parse(path)
    # Installing python3-sklearn would remove libboost1.81-dev, which Troupe is built with; its one file is enough.
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["apt-get", "download", "-q", "python3-sklearn"], cwd=folder, check=True)
        package = next(pathlib.Path(folder).glob("*.deb"))
        subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
        return _parse(pathlib.Path(folder) / IN_PACKAGE)


def _parse(path):
    with gzip.open(path, "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.uint8)
    if table.shape != (1797, 65) or table[:, :64].max() > 16 or table[:, 64].max() > 9:
        raise SystemExit(f"{path} does not hold the digits of scikit-learn (1797 rows of 64 pixels of 0..16 and a label)")
    return table[:, :64].reshape(-1, 8, 8), table[:, 64]


def split(images, labels):
    """((train images, labels), (held-out images, labels)). The last 360 are held out: they were written by people of whom
    most wrote none of the others, so this is harder, and closer to what a served model meets, than a shuffled split."""
    return (images[:-HELD_OUT], labels[:-HELD_OUT]), (images[-HELD_OUT:], labels[-HELD_OUT:])


def as_input(images):
    """[N, 1, 8, 8] float32 in 0..1: what the networks read."""
    return (images.astype(np.float32) / 16.0)[:, None, :, :]
