import pytest

from convgpu.cli.run.docker_arguments import CommandLine, Option, UsageError, environment, mounts_at, scan

OWN = {"gpu-memory": True, "dry-run": False}


def line(*words: str) -> CommandLine:
    return scan(words, OWN)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("ubuntu",), CommandLine((), (), (), ("ubuntu",))),
        (
            ("--gpu-memory", "2g", "-it", "--rm", "ubuntu", "ls", "-l", "--gpu-memory", "9g"),
            CommandLine(
                ("--gpu-memory", "2g"),
                ("-it", "--rm"),
                (Option("interactive", None), Option("tty", None), Option("rm", None)),
                ("ubuntu", "ls", "-l", "--gpu-memory", "9g"),
            ),
        ),
        (
            ("--name", "a", "--gpu-memory=2g", "-eFOO=1", "--dry-run", "image"),
            CommandLine(
                ("--gpu-memory=2g", "--dry-run"),
                ("--name", "a", "-eFOO=1"),
                (Option("name", "a"), Option("env", "FOO=1")),
                ("image",),
            ),
        ),
        (
            ("-itdv", "/a:/b", "image"),
            CommandLine(
                (),
                ("-itdv", "/a:/b"),
                (
                    Option("interactive", None),
                    Option("tty", None),
                    Option("detach", None),
                    Option("volume", "/a:/b"),
                ),
                ("image",),
            ),
        ),
        (
            ("-it=false", "-e=A=b", "-w/src", "image"),
            CommandLine(
                (),
                ("-it=false", "-e=A=b", "-w/src"),
                (
                    Option("interactive", None),
                    Option("tty", "false"),
                    Option("env", "A=b"),
                    Option("workdir", "/src"),
                ),
                ("image",),
            ),
        ),
        (
            ("--init", "--privileged=true", "--pull", "never", "--", "image", "--", "-x"),
            CommandLine(
                (),
                ("--init", "--privileged=true", "--pull", "never"),
                (Option("init", None), Option("privileged", "true"), Option("pull", "never")),
                ("image", "--", "-x"),
            ),
        ),
        (
            ("--brand-new-option", "value", "image"),
            CommandLine((), ("--brand-new-option", "value"), (Option("brand-new-option", "value"),), ("image",)),
        ),
        (("--rm", "-d"), CommandLine((), ("--rm", "-d"), (Option("rm", None), Option("detach", None)), ())),
        (
            ("-e", "--gpu-memory", "image"),
            CommandLine((), ("-e", "--gpu-memory"), (Option("env", "--gpu-memory"),), ("image",)),
        ),
        ((), CommandLine((), (), (), ())),
    ],
)
def test_scan_splits_as_docker_does(words: tuple[str, ...], expected: CommandLine) -> None:
    assert scan(words, OWN) == expected


@pytest.mark.parametrize("words", [("--name",), ("-it", "-e"), ("-ite",), ("--gpu-memory",)])
def test_an_option_without_its_value_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match=f"option {words[-1]} needs a value"):
        scan(words, OWN)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("-v", "/run/convgpu"), "--volume /run/convgpu"),
        (("-v", "data:/run/convgpu/:ro"), "--volume data:/run/convgpu/:ro"),
        (("--tmpfs", "/run/convgpu:size=1m"), "--tmpfs /run/convgpu:size=1m"),
        (("--mount", "type=tmpfs,target=/run//convgpu"), "--mount type=tmpfs,target=/run//convgpu"),
        (("--mount=type=volume,dst=/run/convgpu",), "--mount type=volume,dst=/run/convgpu"),
        (("-v", "/run/convgpu:/elsewhere", "--tmpfs", "/run", "--mount", "type=tmpfs,dst=/tmp"), None),
        (("-e", "PATH=/run/convgpu"), None),
    ],
)
def test_a_mount_of_the_user_at_our_path_is_found(words: tuple[str, ...], expected: str | None) -> None:
    assert mounts_at(line(*words, "image")) == expected


@pytest.mark.parametrize(
    ("words", "files", "image", "expected"),
    [
        ((), (), (), ""),
        ((), (), ("A=image",), "image"),
        ((), ("# A=comment\n A=file\nB=2\n",), ("A=image",), "file"),
        (("-e", "A=1", "--env=A=2"), ("A=file",), ("A=image",), "2"),
        (("-e", "A=1", "-e", "A"), (), (), "caller"),
        (("-e", "AA=1"), (), (), ""),
    ],
)
def test_the_environment_is_what_docker_makes_of_it(
    words: tuple[str, ...], files: tuple[str, ...], image: tuple[str, ...], expected: str
) -> None:
    found = environment(line(*words, "image"), "A", inherited={"A": "caller"}, files=files, image=image)
    assert found == expected
