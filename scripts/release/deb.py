# SPDX-License-Identifier: Apache-2.0
"""Makes the Debian package from a wheel: the command with what it needs, man pages, completion, a unit.

    scripts/release/deb.py WHEEL FOLDER        prints the path of the package, in FOLDER
    scripts/release/deb.py --fetch             only fetches what it needs, for tests, which have no way to the network;
                                               status 3: the package index cannot be reached

One package serves Debian 12 and 13 and Ubuntu 24.04: /usr/lib/convgpu is a virtual environment on the system's python3,
whose site-packages hold the compiled modules of each Python from 3.11 to 3.14 side by side (decision 85).
"""

import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from email.message import Message
from email.parser import HeaderParser
from importlib.metadata import requires
from pathlib import Path

import man_pages
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from convgpu.cli.__main__ import main as convgpu
from convgpu.cli.setup.docker_script import script

ROOT = Path(__file__).resolve().parents[2]
DEBIAN = ROOT / "deploy/debian"
UNITS = ("systemd/convgpu-metrics.service", "systemd/convgpu-dashboard.service", "slurm/convgpu-cluster.service")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
PROGRAMS = {"convgpu": "convgpu.cli.entry:start", "convgpud": "convgpu.daemon.__main__:main"}
PROGRAMS["convgpu-runtime"] = "convgpu.runtime.__main__:main"
PREFIX = "usr/lib/convgpu"
# Without `site`, which would find nothing but these packages and takes a fifth of a bare start of Python.
PROGRAM = """#!/{prefix}/bin/python -IS
import sys
sys.path.append("/{prefix}/lib/site-packages")
from {module} import {function}
sys.exit({function}())
"""
TRIES = 3  # of a download
# urllib3's errors where there is no way to a server, as pip's warnings name them.
UNREACHABLE = re.compile(r"(NewConnection|NameResolution|ConnectTimeout|Proxy)Error")
SHELLS: dict[str, tuple[type[ShellComplete], str]] = {
    "usr/share/bash-completion/completions/convgpu": (BashComplete, "bash_source"),
    "usr/share/zsh/vendor-completions/_convgpu": (ZshComplete, "zsh_source"),
    "usr/share/fish/vendor_completions.d/convgpu.fish": (FishComplete, "fish_source"),
}


def metadata(wheel: Path) -> Message:
    """Return the metadata of a wheel."""
    with zipfile.ZipFile(wheel) as opened:
        name = next(each for each in opened.namelist() if each.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(opened.read(name).decode())


def normal(name: str) -> str:
    """Return the name of a distribution as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(direct: Sequence[str], pins: dict[str, str]) -> list[str]:
    """Return the pins of requirements, and of what those require in turn, without extras."""
    found: set[str] = set()
    left = list(direct)
    while left:
        requirement, _, marker = left.pop().partition(";")
        name = normal(re.split(r"[^\w.-]", requirement.strip(), maxsplit=1)[0])
        if "extra" not in marker and name in pins and name not in found:
            found.add(name)
            left += requires(name) or ()
    return sorted(pins[name] for name in found)


def download(pinned: Sequence[str], version: str, folder: Path) -> None:
    """Fetch wheels for a version of Python."""
    platforms = [word for name in PLATFORMS for word in ("--platform", f"{name}_{os.uname().machine}")]
    pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
    choice = ["--only-binary", ":all:", "--python-version", version, *platforms]
    command = [*pip, *choice, "-d", str(folder), *pinned]
    for tries in range(1, TRIES + 1):
        done = subprocess.run(command, check=False, stdout=sys.stderr, stderr=subprocess.PIPE, text=True)
        sys.stderr.write(done.stderr)
        if tries == TRIES or UNREACHABLE.search(done.stderr):
            done.check_returncode()
        if done.returncode == 0:
            return


def wheels(direct: Sequence[str]) -> list[Path]:
    """Return the wheels of what the requirements need, for all PYTHONS; downloaded once for each set of pins."""
    lines = (ROOT / "requirements.txt").read_text().split()
    pinned = needed(direct, {normal(line.partition("==")[0]): line for line in lines})
    key = hashlib.sha256(json.dumps([pinned, PYTHONS, PLATFORMS]).encode()).hexdigest()[:16]
    folder = ROOT / ".cache/release-wheels" / key
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as work:
            fresh = Path(work, "new")
            download(pinned, PYTHONS[0], fresh)
            compiled = {normal(file.name.split("-")[0]) for file in fresh.glob("*.whl") if "-none-any" not in file.name}
            for version in PYTHONS[1:]:
                download([pin for pin in pinned if normal(pin.partition("==")[0]) in compiled], version, fresh)
            try:
                fresh.rename(folder)
            except OSError:  # another build was first
                if not folder.exists():
                    raise
    return sorted(folder.glob("*.whl"))


def unpack(wheel: Path, site: Path) -> None:
    """Unpack a wheel as pip does, with its programs' modes."""
    with zipfile.ZipFile(wheel) as opened:
        for entry in opened.infolist():
            if ".data/" in entry.filename:
                continue  # scripts of a dependency
            path = Path(opened.extract(entry, site))
            if path.is_file():
                path.chmod(0o755 if entry.external_attr >> 16 & 0o111 else 0o644)


def environment(tree: Path, wheel: Path) -> None:
    """Make the virtual environment: it needs no package python3-venv, and no pip."""
    prefix = tree / PREFIX
    site = prefix / "lib/site-packages"
    for each in (*wheels(metadata(wheel).get_all("Requires-Dist", [])), wheel):
        unpack(each, site)
    (prefix / "bin").mkdir()
    (prefix / "bin/python").symlink_to("/usr/bin/python3")
    (prefix / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    for version in PYTHONS:
        (prefix / f"lib/python{version}").mkdir()
        (prefix / f"lib/python{version}/site-packages").symlink_to("../site-packages")
    (tree / "usr/bin").mkdir(parents=True)
    for name, place in PROGRAMS.items():
        module, _, function = place.partition(":")
        write(prefix / "bin" / name, PROGRAM.format(prefix=PREFIX, module=module, function=function), mode=0o755)
        (tree / "usr/bin" / name).symlink_to(f"../lib/convgpu/bin/{name}")


def write(path: Path, text: str | bytes, mode: int = 0o644) -> None:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)


def compressed(text: str) -> bytes:
    """Return text as gzip, without a time."""
    return gzip.compress(text.encode(), mtime=0)


def surroundings(tree: Path, version: str, date: str) -> None:
    """Write what stands around the command: Docker's plugin, completion, man pages, unit, documents."""
    write(tree / "usr/libexec/docker/cli-plugins/docker-convgpu", script("/usr/bin/convgpu"), mode=0o755)
    for place, (shell, _) in SHELLS.items():
        write(tree / place, shell(convgpu, {}, "convgpu", "_CONVGPU_COMPLETE").source())
    with tempfile.TemporaryDirectory() as pages:
        man_pages.write(Path(pages), version, date)
        for page in sorted(Path(pages).glob("*/*")):
            write(tree / f"usr/share/man/{page.parent.name}/{page.name}.gz", compressed(page.read_text()))
    for file in UNITS:
        unit = (ROOT / "deploy" / file).read_text().replace("/usr/local/bin/", "/usr/bin/")
        write(tree / "usr/lib/systemd/system" / Path(file).name, unit)
    documents = tree / "usr/share/doc/convgpu"
    write(documents / "copyright", (DEBIAN / "copyright").read_text())
    write(documents / "changelog.gz", compressed((ROOT / "CHANGELOG.md").read_text()))
    patterns = ("*.*", "measurements/*.md", "strict-attempts/*.md")
    pages = [page for pattern in patterns for page in sorted((ROOT / "docs").glob(pattern))]
    for file in [ROOT / "README.md", *pages]:
        write(documents / file.relative_to(ROOT), file.read_bytes())
    for file in sorted([*(ROOT / "deploy/prometheus").iterdir(), *(ROOT / "deploy/grafana").iterdir()]):
        write(documents / "examples" / file.name, file.read_bytes())


def control(tree: Path, version: str, summary: str) -> str:
    """Return the file `control`."""
    machine = subprocess.check_output(["dpkg", "--print-architecture"], text=True).strip()
    size = sum(file.lstat().st_size for file in tree.rglob("*") if not file.is_dir()) // 1024
    name, mail = os.environ.get("DEBFULLNAME"), os.environ.get("DEBEMAIL")
    maintainer = f"{name} <{mail}>" if name and mail else "ConvGPU contributors <contributors@convgpu.invalid>"
    last = PYTHONS[-1].partition(".")[2]
    fields = {
        "Package": "convgpu",
        "Version": version,
        "Architecture": machine,
        "Maintainer": maintainer,
        "Installed-Size": str(size),
        "Depends": f"python3 (>= {PYTHONS[0]}), python3 (<< 3.{int(last) + 1}), libc6 (>= 2.34)",
        "Recommends": "docker.io | docker-ce",
        "Section": "admin",
        "Priority": "optional",
        "Description": f"{summary[0].lower()}{summary[1:]}",
    }
    text = "".join(f"{key}: {value}\n" for key, value in fields.items())
    return text + (
        " The command for users and administrators, `docker convgpu` for all users, and the OCI runtime.\n"
        " The managed plugin, in which the scheduler runs, comes from a registry: convgpu install plugin.\n"
    )


def sums(tree: Path) -> str:
    """Return the file `md5sums`, by which `dpkg --verify` finds changed files."""
    files = sorted(file for file in tree.rglob("*") if file.is_file() and not file.is_symlink())
    digests = ((hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest(), file) for file in files)
    return "".join(f"{digest}  {file.relative_to(tree)}\n" for digest, file in digests)


def build(wheel: Path, folder: Path, date: str) -> Path:
    """Build the package; return its path."""
    described = metadata(wheel)
    version, summary = described["Version"], described["Summary"]
    with tempfile.TemporaryDirectory() as work:
        tree = Path(work, "tree")
        tree.mkdir(mode=0o755)
        environment(tree, wheel)
        surroundings(tree, version, date)
        information = {"control": control(tree, version, summary), "md5sums": sums(tree)}
        for name, text in information.items():
            write(tree / "DEBIAN" / name, text)
        for name in ("postinst", "prerm", "postrm"):
            shutil.copy(DEBIAN / name, tree / "DEBIAN" / name)
        subprocess.run(["find", str(tree), "-type", "d", "-exec", "chmod", "755", "{}", "+"], check=True)
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-Zzstd", "--build", str(tree), str(folder)],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    return Path(re.findall(r"'([^']+)'", done.stdout)[-1])


def today() -> str:
    """Return the day of SOURCE_DATE_EPOCH, which `make release` sets to that of the commit."""
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    return subprocess.check_output(["date", "-u", "-d", f"@{seconds}", "+%F"], text=True).strip()


def main(words: Sequence[str]) -> int:
    """Build, or only fetch; the last line on stderr is the reason where a wheel cannot be had."""
    try:
        if list(words) == ["--fetch"]:
            wheels(requires("convgpu") or [])
        else:
            print(build(Path(words[0]), Path(words[1]), today()))
    except subprocess.CalledProcessError as error:
        if "pip" not in error.cmd:
            raise
        found = UNREACHABLE.search(error.stderr)
        if found is not None:
            sys.stderr.write(f"convgpu: no network: pip cannot reach its index: {found[0]}\n")
            return 3
        sys.stderr.write("convgpu: pip reaches its index and cannot download what the Debian package needs\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
