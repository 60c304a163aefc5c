import pytest

from convgpu.cli.run.docker_arguments import UsageError, scan
from convgpu.cli.run.gpu_access import Access
from convgpu.cli.run.injection import (
    SIMULATED,
    Request,
    Surroundings,
    check_memory,
    check_priority,
    check_wait,
    docker_words,
    explain,
)

MOUNT = "type=volume,volume-driver=convgpu,volume-opt=memory=2g,dst=/run/convgpu"
PRELOAD = "LD_PRELOAD=/run/convgpu/libconvgpu.so"
TWO_GIB = Request("2g", None, "convgpu")
FILE = ["--mount", "type=bind,src=/d/ld.so.preload,dst=/etc/ld.so.preload,readonly"]
TOOLKIT = Access(("--gpus", "all"), None, "NVIDIA's container toolkit")
CARD = Surroundings(TOOLKIT, "/d/ld.so.preload", inherited={})
FAKE = CARD.changed(access=SIMULATED)


def words(text: str, request: Request = TWO_GIB, around: Surroundings = CARD) -> list[str]:
    return docker_words(scan(text.split(), {}), request, around)


def test_the_container_is_labelled_with_its_user_unless_the_user_names_another() -> None:
    known = CARD.changed(user="ana")
    assert "--label convgpu.user=ana" in " ".join(docker_words(scan(["image"], {}), TWO_GIB, known))
    line = scan(["--label", "convgpu.user=team", "-l", "a=b", "image"], {})
    assert "convgpu.user=ana" not in docker_words(line, TWO_GIB, known)
    assert "--label" not in docker_words(scan(["image"], {}), TWO_GIB, CARD)


def test_a_real_device_gets_gpus_volume_and_library_right_before_the_image() -> None:
    assert words("--rm -it --name a image cmd -e X=1") == [
        *["docker", "run", "--rm", "-it", "--name", "a"],
        *["--gpus", "all", "--mount", MOUNT, *FILE, "-e", PRELOAD],
        *["image", "cmd", "-e", "X=1"],
    ]


@pytest.mark.parametrize("chosen", ["--device nvidia.com/gpu=0", "--device=/dev/nvidia0", "--runtime nvidia"])
def test_the_users_own_choice_of_gpus_stands(chosen: str) -> None:
    assert words(f"{chosen} image") == [
        *["docker", "run", *chosen.split()],
        *["--mount", MOUNT, *FILE, "-e", PRELOAD, "image"],
    ]


def test_simulated_devices_bring_their_driver_instead() -> None:
    assert words("image", around=FAKE) == [
        *["docker", "run", "--mount", MOUNT, *FILE, "-e", PRELOAD],
        *["-e", "LD_LIBRARY_PATH=/run/convgpu/driver", "image"],
    ]


def test_the_users_own_libraries_stand_behind_ours() -> None:
    around = FAKE.changed(
        env_files=["LD_PRELOAD=/file.so"],
        image_environment=["LD_LIBRARY_PATH=/image/lib", "LD_PRELOAD=/image.so"],
    )
    assert words("-e LD_PRELOAD=/mine.so image", around=around) == [
        *["docker", "run", "-e", "LD_PRELOAD=/mine.so", "--mount", MOUNT, *FILE],
        *["-e", f"{PRELOAD}:/mine.so"],
        *["-e", "LD_LIBRARY_PATH=/run/convgpu/driver:/image/lib", "image"],
    ]


def test_limits_per_gpu_the_wait_and_the_priority_become_volume_options() -> None:
    request = Request("GPU-a:2g,GPU-b:4g", "30s", "lab", priority="7")
    others = "volume-opt=wait=30s,volume-opt=priority=7"
    assert words("image", request) == [
        *["docker", "run", "--gpus", "all", "--mount"],
        f'type=volume,volume-driver=lab,"volume-opt=memory=GPU-a:2g,GPU-b:4g",{others},dst=/run/convgpu',
        *[*FILE, "-e", PRELOAD, "image"],
    ]


def test_the_chosen_gpus_become_a_volume_option() -> None:
    mount = 'type=volume,volume-driver=convgpu,volume-opt=memory=2g,"volume-opt=gpus=0,1",dst=/run/convgpu'
    assert words("image", TWO_GIB.changed(gpus='"device=0,1"'), FAKE)[3] == mount


@pytest.mark.parametrize(
    ("gpus", "option", "docker"),
    [
        (None, None, "all"),
        ("all", "all", "all"),
        ("any", "any", "all"),
        ("1", "any", "all"),
        ("any:2", "any:2", "all"),
        ("2", "any:2", "all"),
        ("count=3,capabilities=utility", "any:3", "all,capabilities=utility"),
        ("device=1", "1", "device=1"),
    ],
)
def test_a_count_leaves_the_choice_to_the_scheduler(gpus: str | None, option: str | None, docker: str) -> None:
    request = TWO_GIB.changed(gpus=gpus)
    assert (request.option, request.docker_gpus) == (option, docker)


@pytest.mark.parametrize(
    ("memory", "gpus", "devices", "docker"),
    [
        ("2g", None, None, "all"),
        ("2g", "2", None, "all"),
        ("2g", '"device=1,GPU-a"', ("1", "GPU-a"), '"device=1,GPU-a"'),
        ("GPU-a:2g,GPU-b:4g", None, ("GPU-a", "GPU-b"), '"device=GPU-a,GPU-b"'),
    ],
)
def test_limits_per_gpu_choose_the_gpus(
    memory: str, gpus: str | None, devices: tuple[str, ...] | None, docker: str
) -> None:
    request = Request(memory, None, "convgpu", gpus)
    assert (request.devices, request.docker_gpus) == (devices, docker)


def test_another_engine_and_another_verb_stay_what_the_user_typed() -> None:
    around = FAKE.changed(docker=("docker", "--host", "tcp://gpu:2376"))
    assert words("image", TWO_GIB.changed(verb="create"), around)[:4] == [
        "docker",
        "--host",
        "tcp://gpu:2376",
        "create",
    ]


def test_a_preload_file_of_the_user_stands_and_is_pointed_out() -> None:
    line = scan(["-v", "/mine:/etc/ld.so.preload", "image"], {})
    assert FILE[1] not in docker_words(line, TWO_GIB, CARD)
    told = [row for row in explain(line, TWO_GIB, CARD) if row.startswith("/etc/ld.so.preload: yours")]
    assert len(told) == 1


def test_what_is_added_is_told_in_words() -> None:
    request = TWO_GIB.changed(wait="30s", priority="1", gpus="device=1")
    assert explain(scan(["image"], {}), request, CARD) == [
        "volume at /run/convgpu: limit 2g on GPU 1, waits at most 30s, priority 1",
        "/etc/ld.so.preload: the library in every program, docker exec too",
        "LD_PRELOAD: /run/convgpu/libconvgpu.so",
        "GPUs: NVIDIA's container toolkit",
    ]


@pytest.mark.parametrize(("text", "value"), [("0", "0"), ("-3", "-3"), ("+07", "7")])
def test_a_priority_is_a_whole_number(text: str, value: str) -> None:
    assert check_priority(text) == value


@pytest.mark.parametrize("text", ["", "high", "1.5", "0x1", "1e3", "\u0661"])
def test_another_priority_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write a whole number"):
        check_priority(text)


def test_the_end_of_options_is_kept_for_an_image_that_looks_like_one() -> None:
    assert words("-- -image")[-2:] == ["--", "-image"]


@pytest.mark.parametrize(
    ("text", "volumes", "message"),
    [
        ("--rm -d", (), "no IMAGE is named"),
        ("-v /data:/run/convgpu image", (), "'--volume /data:/run/convgpu' mounts something at /run/convgpu"),
        ("image", ("/data", "/run/convgpu/"), "the image image declares a volume of its own at /run/convgpu"),
    ],
)
def test_what_cannot_work_is_refused(text: str, volumes: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        words(text, around=CARD.changed(image_volumes=volumes))


@pytest.mark.parametrize("text", ["2g", "512m", "2GiB", "50%", "GPU-a:2g", "GPU-a:2g,GPU-b:25%"])
def test_a_limit_in_a_known_form_is_taken_as_it_stands(text: str) -> None:
    assert check_memory(text) == text


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "20XB", "2g,4g", ":2g", "GPU-a:", "GPU-a:2g,4g", "much", "0%", "101%", "5%5", "%"]
)
def test_a_limit_in_an_unknown_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write"):
        check_memory(text)


@pytest.mark.parametrize("text", ["500ms", "30s", "5m", "2h", "30", "0"])
def test_a_wait_in_a_known_form_is_taken_as_it_stands(text: str) -> None:
    assert check_wait(text) == text


@pytest.mark.parametrize("text", ["", "1.5s", "-1s", "5 minutes", "1w"])
def test_a_wait_in_an_unknown_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write it as 500ms, 30s, 5m, 2h or 1d"):
        check_wait(text)


def test_an_image_with_files_where_the_volume_has_to_be_is_refused() -> None:
    with pytest.raises(UsageError, match="the image image has files of its own at /run/convgpu"):
        words("image", around=CARD.changed(occupied=True))
