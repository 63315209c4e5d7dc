"""Cases of spectra and of the tables that go with them (opset 17, 20)."""
import numpy as np

from harness import Const, floats


def add_all(cases):
    x, z = floats(2, 12, 1, seed=200), floats(2, 12, 2, seed=201)
    for inverse in (0, 1):
        cases.op(f"complex_{inverse}", 18, "DFT", [z], axis=1, inverse=inverse)
        cases.op(f"complex_{inverse}", 20, "DFT", [z], inverse=inverse)
    cases.op("onesided", 18, "DFT", [x], axis=1, onesided=1)
    cases.op("onesided", 20, "DFT", [x, None, Const(1)], onesided=1)
    cases.op("longer", 20, "DFT", [x, Const(16), Const(1)])
    cases.op("shorter", 20, "DFT", [x, Const(7), Const(1)])
    cases.op("prime", 20, "DFT", [floats(1, 31, 1, seed=202), None, Const(-2)])
    cases.op("axis_0", 20, "DFT", [floats(6, 3, 2, seed=203), None, Const(0)])
    cases.op("axis_2", 22, "DFT", [floats(2, 3, 10, 1, seed=204), None, Const(2)])
    cases.op("float64", 20, "DFT", [floats(1, 15, 2, seed=205, kind=np.float64)])
    signal = floats(2, 40, 1, seed=206)
    window = np.hanning(16).astype(np.float32)
    for opset in (18, 21, 23):
        cases.op("window", opset, "STFT", [signal, Const(4), Const(window, np.float32)])
        cases.op("length", opset, "STFT", [signal, Const(5), None, Const(10)])
        cases.op("whole", opset, "STFT", [signal, Const(8), Const(window, np.float32), Const(16)], onesided=0)
    for op in ("HannWindow", "HammingWindow", "BlackmanWindow"):
        for periodic in (0, 1):
            cases.op(f"periodic_{periodic}", 18, op, [Const(10)], periodic=periodic)
        cases.op("float64", 20, op, [Const(9)], output_datatype=11)
    cases.op("speech", 18, "MelWeightMatrix", [Const(8), Const(64), Const(8192), Const(0.0, np.float32),
                                               Const(4096.0, np.float32)])
    cases.op("narrow", 22, "MelWeightMatrix", [Const(4), Const(32), Const(16000), Const(125.0, np.float32),
                                               Const(3800.0, np.float32)])
