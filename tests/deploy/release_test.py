#!/usr/bin/python3
"""What a release is made of: the SBOM, the checksums, and that two builds which differ make none."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy"))
sys.dont_write_bytecode = True
import release  # noqa: E402


def package(folder, name, depends, content="x"):
    tree = pathlib.Path(folder) / "tree"
    (tree / "DEBIAN").mkdir(parents=True, exist_ok=True)
    (tree / "DEBIAN/control").write_text(f"Package: {name}\nVersion: 1.2\nArchitecture: amd64\nMaintainer: m <m@m.invalid>\n"
                                         f"{f'Depends: {depends}' if depends else ''}\nDescription: d\n".replace("\n\n", "\n"))
    (tree / "content").write_text(content)
    path = pathlib.Path(folder) / f"{name}_1.2_amd64.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", tree, path], check=True, capture_output=True)
    return path


class Release(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.folder = pathlib.Path(held.name)

    def test_the_sbom_names_packages_and_what_they_need(self):
        made = [package(self.folder, "troupe-daemon", "libc6 (>= 2.34), libabsl20220623"), package(self.folder, "troupe-gpu-worker", "troupe-daemon (= 1.2)")]
        told = release.sbom(made, "1.2", "abc", "1764000000", {"libc6": "2.36-9+deb12u1", "libabsl20220623": ""}.get)
        self.assertEqual((told["spdxVersion"], told["dataLicense"], told["creationInfo"]["created"]), ("SPDX-2.3", "CC0-1.0", "2025-11-24T16:00:00Z"))
        by_name = {entry["name"]: entry for entry in told["packages"]}
        self.assertEqual(set(by_name), {"troupe-daemon", "troupe-gpu-worker", "libc6", "libabsl20220623"})
        self.assertEqual(by_name["troupe-daemon"]["checksums"][0]["checksumValue"], release.digest(made[0]))
        self.assertEqual(by_name["libc6"]["externalRefs"][0]["referenceLocator"], "pkg:deb/debian/libc6@2.36-9%2Bdeb12u1?arch=amd64")
        self.assertNotIn("versionInfo", by_name["libabsl20220623"])
        identities = {entry["SPDXID"] for entry in told["packages"]} | {"SPDXRef-DOCUMENT"}
        self.assertEqual(len(identities), 5)
        for relation in told["relationships"]:
            self.assertLessEqual({relation["spdxElementId"], relation["relatedSpdxElement"]}, identities)
        self.assertIn({"spdxElementId": "SPDXRef-troupe-gpu-worker", "relationshipType": "DEPENDS_ON", "relatedSpdxElement": "SPDXRef-troupe-daemon"},
                      told["relationships"])

    def test_two_builds_that_differ_are_named(self):
        one, two = self.folder / "one", self.folder / "two"
        for folder, content in ((one, "x"), (two, "y")):
            folder.mkdir()
            package(folder, "troupe-cli", "", content)
        package(one, "troupe-sim", "")
        self.assertEqual(release.differences(one, two), ["troupe-cli_1.2_amd64.deb differs between the two builds",
                                                         "troupe-sim_1.2_amd64.deb was made in one of the two builds only"])
        self.assertEqual(release.differences(one, one), [])

    def test_sums_are_what_sha256sum_checks(self):
        package(self.folder, "troupe-cli", "")
        (self.folder / "tree/DEBIAN/control").unlink()
        subprocess.run(["rm", "-r", self.folder / "tree"], check=True)
        release.write_sums(self.folder)
        checked = subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual((checked.returncode, checked.stdout), (0, "troupe-cli_1.2_amd64.deb: OK\n"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
