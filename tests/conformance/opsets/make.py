#!/usr/bin/env python3
"""Makes the archives of cases beside this file anew. It needs Node.js and onnxruntime-node, which nothing else needs:

    npm install --ignore-scripts --prefix /tmp/oracle onnxruntime-node
    ORACLE_FOLDER=/tmp/oracle /usr/bin/python3 -B tests/conformance/opsets/make.py
"""
import argparse

import attention_cases
import classic_cases
import control_cases
import elementwise_cases
import export_mixed
import export_speech_text
import export_vision
import fused_cases
import fused_networks
import movement_cases
import networks
import signal_cases
import text_cases
from harness import HERE, Cases, write_archive


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="make one archive")
    only = parser.parse_args().only
    if only in (None, "operators"):
        cases = Cases()
        for family in (elementwise_cases, movement_cases, attention_cases, signal_cases):
            family.add_all(cases)
        write_archive(HERE / "operators.tar.gz", "opsets", cases.list)
    if only in (None, "networks"):
        write_archive(HERE / "networks.tar.gz", "networks", networks.all_networks())
    if only in (None, "classic"):
        write_archive(HERE / "classic.tar.gz", "classic", classic_cases.all_cases())
    if only in (None, "fused"):
        cases = Cases()
        fused_cases.add_all(cases)
        write_archive(HERE / "fused.tar.gz", "fused", cases.list)
    if only in (None, "fused_networks"):
        write_archive(HERE / "fused_networks.tar.gz", "fused_networks", fused_networks.all_networks())
    if only in (None, "texts"):
        write_archive(HERE / "texts.tar.gz", "texts", text_cases.all_cases())
    if only in (None, "exports"):
        exports = [case for family in (export_speech_text, export_vision, export_mixed) for case in family.all_exports()]
        write_archive(HERE / "exports.tar.gz", "exports", exports)
    if only in (None, "control"):
        write_archive(HERE / "control.tar.gz", "control", control_cases.all_cases())


if __name__ == "__main__":
    main()
