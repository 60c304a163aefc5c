import pytest

from convgpu.cli.run_options import UsageError, scan
from convgpu.cli.run_request import Request, Surroundings, check_memory, check_wait, docker_words

MOUNT = "type=volume,volume-driver=convgpu,volume-opt=memory=2g,dst=/run/convgpu"
PRELOAD = "LD_PRELOAD=/run/convgpu/libconvgpu.so"
TWO_GIB = Request("2g", None, "convgpu")
CARD = Surroundings(library_path=None, inherited={})
SIMULATED = Surroundings(library_path="/run/convgpu/driver", inherited={})


def words(text: str, request: Request = TWO_GIB, around: Surroundings = CARD) -> list[str]:
    return docker_words(scan(text.split(), {}), request, around)


def test_a_real_device_gets_gpus_volume_and_library_right_before_the_image() -> None:
    assert words("--rm -it --name a image cmd -e X=1") == [
        *["docker", "run", "--rm", "-it", "--name", "a"],
        *["--gpus", "all", "--mount", MOUNT, "-e", PRELOAD],
        *["image", "cmd", "-e", "X=1"],
    ]


@pytest.mark.parametrize("chosen", ["--gpus=1", "--gpus device=0", "--device nvidia.com/gpu=0", "--runtime nvidia"])
def test_the_users_own_choice_of_gpus_stands(chosen: str) -> None:
    assert words(f"{chosen} image") == [
        *["docker", "run", *chosen.split()],
        *["--mount", MOUNT, "-e", PRELOAD, "image"],
    ]


def test_simulated_devices_bring_their_driver_instead() -> None:
    assert words("image", around=SIMULATED) == [
        *["docker", "run", "--mount", MOUNT, "-e", PRELOAD],
        *["-e", "LD_LIBRARY_PATH=/run/convgpu/driver", "image"],
    ]


def test_the_users_own_libraries_stand_behind_ours() -> None:
    around = Surroundings(
        library_path="/run/convgpu/driver",
        inherited={},
        env_files=["LD_PRELOAD=/file.so"],
        image_environment=["LD_LIBRARY_PATH=/image/lib", "LD_PRELOAD=/image.so"],
    )
    assert words("-e LD_PRELOAD=/mine.so image", around=around) == [
        *["docker", "run", "-e", "LD_PRELOAD=/mine.so", "--mount", MOUNT],
        *["-e", f"{PRELOAD}:/mine.so"],
        *["-e", "LD_LIBRARY_PATH=/run/convgpu/driver:/image/lib", "image"],
    ]


def test_limits_per_gpu_and_the_wait_become_volume_options() -> None:
    request = Request("GPU-a:2g,GPU-b:4g", "30s", "lab")
    assert words("--gpus all image", request) == [
        *["docker", "run", "--gpus", "all", "--mount"],
        'type=volume,volume-driver=lab,"volume-opt=memory=GPU-a:2g,GPU-b:4g",volume-opt=wait=30s,dst=/run/convgpu',
        *["-e", PRELOAD, "image"],
    ]


def test_the_end_of_options_is_kept_for_an_image_that_looks_like_one() -> None:
    assert words("--gpus all -- -image")[-2:] == ["--", "-image"]


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
        words(text, around=Surroundings(library_path=None, inherited={}, image_volumes=volumes))


@pytest.mark.parametrize("text", ["2g", "512m", "2GiB", "GPU-a:2g", "GPU-a:2g,GPU-b:4GiB"])
def test_a_limit_in_a_known_form_is_taken_as_it_stands(text: str) -> None:
    assert check_memory(text) == text


@pytest.mark.parametrize("text", ["", "0", "-1", "20GB", "2g,4g", ":2g", "GPU-a:", "GPU-a:2g,4g", "much"])
def test_a_limit_in_an_unknown_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write"):
        check_memory(text)


@pytest.mark.parametrize("text", ["500ms", "30s", "5m", "2h", "30", "0"])
def test_a_wait_in_a_known_form_is_taken_as_it_stands(text: str) -> None:
    assert check_wait(text) == text


@pytest.mark.parametrize("text", ["", "1.5s", "-1s", "5 minutes", "1d"])
def test_a_wait_in_an_unknown_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write it as 500ms, 30s, 5m or 2h"):
        check_wait(text)


def test_an_image_with_files_where_the_volume_has_to_be_is_refused() -> None:
    with pytest.raises(UsageError, match="the image image has files of its own at /run/convgpu"):
        words("image", around=Surroundings(library_path=None, inherited={}, occupied=True))
