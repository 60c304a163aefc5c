"""What `make release` builds beside the plugin: the contents of wheel, sdist and Debian package, and that they run."""

import functools
import gzip
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from email.parser import HeaderParser
from pathlib import Path
from types import ModuleType

import pytest
from hatchling.builders.sdist import SdistBuilder

from convgpu.cli.__main__ import COMMANDS

ROOT = Path(__file__).parents[2]
URLS = "Homepage=https://project.example/,Issues=https://project.example/issues"
IMAGE = "registry.example/team/convgpu:0.1.0"
NATIVE = {
    "libconvgpu.so",
    "libconvgpu-page.so",
    "libconvgpu-safety.so",
    "convgpu-porter",
    "simulated/libcuda.so.1",
    "simulated/libnvidia-ml.so.1",
    "simulated/gpu-hold",
}
SERVERS = {"flask", "gunicorn", "prometheus_client", "werkzeug", "jinja2"}


@functools.cache
def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"scripts/release/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def environment() -> dict[str, str]:
    return {**os.environ, "CONVGPU_PLUGIN_IMAGE": IMAGE, "SOURCE_DATE_EPOCH": "1795305600", "URLS": URLS}


def make(*command: str) -> None:
    """Build something; a failure shows the end of what the program says."""
    done = subprocess.run(command, check=False, cwd=ROOT, env=environment(), capture_output=True, text=True)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr[-2000:]}", pytrace=False)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with wheel and sdist, built once."""
    folder = tmp_path_factory.mktemp("packages")
    hatchling = [str(Path(sys.executable).parent / "hatchling"), "build", "-d", str(folder)]
    make(*hatchling)
    return folder


@pytest.fixture(scope="module")
def wheel(packages: Path) -> Iterator[zipfile.ZipFile]:
    with zipfile.ZipFile(next(packages.glob("*.whl"))) as opened:
        yield opened


@pytest.fixture(scope="module")
def installed(packages: Path) -> Path:
    """The tree of the Debian package: its environment finds itself wherever it lies."""
    if shutil.which("dpkg-deb") is None:
        pytest.skip("no dpkg-deb: this is no Debian")
    make(sys.executable, str(ROOT / "scripts/release/deb.py"), *map(str, packages.glob("*.whl")), str(packages))
    [found] = packages.glob("*.deb")
    subprocess.run(["dpkg-deb", "-R", str(found), str(packages / "tree")], check=True)
    return packages / "tree"


def run(installed: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run with the package's environment, and nothing of this checkout."""
    clean = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LC_ALL": "C"}
    python = installed / "usr/lib/convgpu/bin/python"
    return subprocess.run(
        [python, "-I", *words], check=False, cwd="/", env=clean, capture_output=True, text=True, timeout=60
    )


def test_the_wheel_has_what_is_written_in_c_and_names_its_plugin(wheel, packages):
    programs = {name.removeprefix("convgpu/native/") for name in wheel.namelist() if "/native/" in name}
    assert programs == NATIVE
    assert wheel.getinfo("convgpu/native/convgpu-porter").external_attr >> 16 & 0o111 == 0o111
    assert json.loads(wheel.read("convgpu/release.json")) == {"plugin_image": IMAGE}
    [file] = packages.glob("*.whl")
    assert re.fullmatch(r"convgpu-\d+\.\d+\.\d+-py3-none-manylinux_2_\d+_\w+\.whl", file.name)
    assert {name.split("/")[0] for name in wheel.namelist()} == {
        "convgpu",
        f"{file.name.partition('-py3')[0]}.dist-info",
    }


def test_the_tag_is_the_glibc_of_the_newest_symbol():
    hook = load("build_hook")
    assert (
        hook.tag([b"..GLIBC_2.17..GLIBC_2.4", b"GLIBC_2.34\0GLIBC_2.2.5"], "x86_64") == "py3-none-manylinux_2_34_x86_64"
    )


def test_the_server_s_packages_are_an_extra(wheel):
    name = next(each for each in wheel.namelist() if each.endswith("/METADATA"))
    described = HeaderParser().parsestr(wheel.read(name).decode())
    needs = {re.split(r"[<>=;\s]", line)[0]: "extra == 'server'" in line for line in described.get_all("Requires-Dist")}
    assert needs == {
        **dict.fromkeys(
            ("click", "docker", "msgspec", "nvidia-ml-py", "requests", "requests-unixsocket", "rich"), False
        ),
        **dict.fromkeys(("flask", "gunicorn", "prometheus-client"), True),
    }


def test_the_addresses_are_those_that_were_said_also_for_a_wheel_of_the_sdist(wheel, packages, tmp_path):
    lines = ["Homepage, https://project.example/", "Issues, https://project.example/issues"]
    name = next(each for each in wheel.namelist() if each.endswith("/METADATA"))
    assert HeaderParser().parsestr(wheel.read(name).decode()).get_all("Project-URL") == lines
    hook = load("metadata_hook")
    with tarfile.open(next(packages.glob("*.tar.gz"))) as opened:
        opened.extractall(tmp_path, filter="data")
    metadata: dict[str, object] = {}
    hook.AddressesHook(str(next(tmp_path.iterdir())), {}).update(metadata)
    assert metadata["urls"] == dict(line.split(", ") for line in lines)
    assert hook.addresses("") == {}
    for wrong in ("https://project.example/", "Homepage=project.example", "=https://project.example/"):
        with pytest.raises(ValueError, match="is not NAME=https"):
            hook.addresses(wrong)


def test_the_sdist_has_the_sources_and_nothing_that_was_built(packages):
    with tarfile.open(next(packages.glob("*.tar.gz"))) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    for name in ("pyproject.toml", "README.md", "LICENSE", "scripts/release/build_hook.py", "deploy/slurm/prolog"):
        assert name in names
    for folder in load("build_hook").FOLDERS:
        assert f"{folder}/Makefile" in names
    assert [name for name in names if "/build/" in name or name.endswith((".so", ".o", ".pyc"))] == []
    assert {name.split("/")[0] for name in names} == {
        *("plugin", "scheduler", "hook", "porter", "tests", "deploy", "scripts"),
        *("CHANGELOG.md", "LICENSE", "README.md", "PKG-INFO", "pyproject.toml", ".gitignore"),
    }


def test_the_sdist_is_made_without_a_walk_through_the_checkout(monkeypatch):
    """Below `.cache` folders come and go with the Engines of other tests, and who walks there fails."""
    walked: list[Path] = []
    walk = os.walk
    monkeypatch.setattr(os, "walk", lambda top, **options: walked.append(Path(top)) or walk(top, **options))
    assert list(SdistBuilder(str(ROOT)).recurse_included_files()) != []
    assert {top.relative_to(ROOT).parts[0] for top in walked} == {
        *("plugin", "scheduler", "hook", "porter"),
        "tests",
        "deploy",
    }


@pytest.mark.wheels
def test_the_debian_package_serves_each_python_and_has_no_server(installed):
    site = installed / "usr/lib/convgpu/lib/site-packages"
    assert {file.name.split("-")[1] for file in (site / "msgspec").glob("_core.*.so")} == {"311", "312", "313", "314"}
    assert SERVERS & {file.name for file in site.iterdir()} == set()
    assert {str(file.relative_to(site / "convgpu/native")) for file in site.glob("convgpu/native/**/*.*")} < NATIVE
    for version in ("3.11", "3.12", "3.13", "3.14"):
        assert (installed / f"usr/lib/convgpu/lib/python{version}/site-packages/click").is_dir()
    control = HeaderParser().parsestr((installed / "DEBIAN/control").read_text())
    version = next(installed.parent.glob("*.whl")).name.split("-")[1]
    assert (control["Package"], control["Version"]) == ("convgpu", version)
    assert control["Depends"].startswith("python3 (>= 3.11), python3 (<< 3.15), libc6")
    subprocess.run(["md5sum", "--quiet", "-c", "DEBIAN/md5sums"], cwd=installed, check=True)


@pytest.mark.wheels
def test_each_command_has_a_man_page_that_shows_its_help(installed):
    folder = installed / "usr/share/man"
    wanted = {f"convgpu-{name}.1.gz" for section in COMMANDS.values() for name in section} | {"convgpu.1.gz"}
    assert wanted <= {file.name for file in (folder / "man1").iterdir()}
    assert {file.name for file in (folder / "man8").iterdir()} == {
        "convgpud.8.gz",
        "convgpud-replay.8.gz",
        "convgpu-runtime.8.gz",
    }
    text = gzip.decompress((folder / "man1/convgpu-events.1.gz").read_bytes()).decode()
    assert text.startswith('.TH "CONVGPU-EVENTS" "1" "2026-11-22"')
    for part in (".SH SYNOPSIS", "\\-\\-follow", ".SH EXIT STATUS"):
        assert part in text
    assert "\b" not in text


def test_roff_sees_no_requests_in_a_help_text():
    pages = load("man_pages")
    text = "One\nparagraph.\n\n\b\n.not a request\n  a\\b -c\n'nor this"
    assert list(pages.paragraphs(text)) == [
        ".PP\nOne paragraph.",
        ".PP\n.nf\n\\&.not a request\n  a\\eb \\-c\n\\&'nor this\n.fi",
    ]


@pytest.mark.wheels
def test_docker_and_the_shells_find_the_command(installed):
    program = installed / "usr/libexec/docker/cli-plugins/docker-convgpu"
    assert "CONVGPU_DOCKER_PLUGIN=1 exec /usr/bin/convgpu" in program.read_text()
    assert program.stat().st_mode & 0o777 == 0o755
    for place, shell in {
        "bash-completion/completions/convgpu": "bash",
        "zsh/vendor-completions/_convgpu": "zsh",
    }.items():
        assert f"_CONVGPU_COMPLETE={shell}_complete" in (installed / "usr/share" / place).read_text()
    subprocess.run(["bash", "-n", installed / "usr/share/bash-completion/completions/convgpu"], check=True)
    unit = (installed / "usr/lib/systemd/system/convgpu-metrics.service").read_text()
    assert "ExecStart=/usr/bin/convgpu metrics --listen 127.0.0.1:9870\n" in unit
    assert "=/usr/bin/convgpu slurm " in (installed / "usr/lib/systemd/system/convgpu-cluster.service").read_text()


@pytest.mark.wheels
def test_all_commands_load_without_the_server_s_packages(installed):
    program = (
        "import importlib, convgpu.daemon.__main__, convgpu.runtime.__main__\n"
        "from convgpu.cli.__main__ import COMMANDS\n"
        "for section in COMMANDS.values():\n"
        "    for place, _ in section.values():\n"
        "        module, _, name = place.partition(':'); getattr(importlib.import_module(module), name)\n"
    )
    done = run(installed, "-c", program)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.wheels
@pytest.mark.parametrize("name", ["convgpu", "convgpud"])
def test_a_program_finds_its_packages_without_site(installed, tmp_path, name):
    text = (installed / "usr/lib/convgpu/bin" / name).read_text()
    assert text.startswith("#!/usr/lib/convgpu/bin/python -IS\n")
    (tmp_path / name).write_text(text.replace("/usr/lib/convgpu", str(installed / "usr/lib/convgpu")))
    (tmp_path / name).chmod(0o755)
    done = subprocess.run([tmp_path / name, "--version"], check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.wheels
def test_the_demo_plays_without_a_checkout(installed):
    done = run(installed, str(installed / "usr/lib/convgpu/bin/convgpu"), "demo", "--processes", "--json")
    assert done.returncode == 0, done.stderr
    assert (json.loads(done.stdout)["pause_seen"], json.loads(done.stdout)["problems"]) == (True, [])
