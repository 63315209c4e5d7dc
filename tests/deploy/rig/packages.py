"""Debian packages as files: what they depend on, and the same programs under another version."""
import pathlib
import re
import shutil

from .hosts import run


def field(package, name):
    return run("dpkg-deb", "--field", package, name).stdout.strip()


def name(package):
    return field(package, "Package")


def dependencies(packages):
    """The other packages that these need, by name; of alternatives the first."""
    needed = set()
    for package in packages:
        for one in field(package, "Depends").split(","):
            found = re.match(r"\s*([a-z0-9][a-z0-9+.-]*)", one)
            if found and not found.group(1).startswith("troupe-"):
                needed.add(found.group(1))
    return sorted(needed)


def with_version(packages, version, folder, scratch):
    """The same files in packages of another version: a release before or after. Answers the new packages."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    made = []
    for package in packages:
        tree = pathlib.Path(scratch) / "unpacked"
        run("dpkg-deb", "--raw-extract", package, tree)
        old, control = field(package, "Version"), tree / "DEBIAN/control"
        text = control.read_text().replace(f"Version: {old}\n", f"Version: {version}\n")
        control.write_text(re.sub(rf"(troupe-[a-z-]+ \(= ){re.escape(old)}\)", rf"\g<1>{version})", text))
        made.append(folder / f"{name(package)}_{version}_amd64.deb")
        run("dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, made[-1])
        shutil.rmtree(tree)
    return made
