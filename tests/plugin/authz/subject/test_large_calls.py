"""What one call may cost: so many things in it, and few such calls at once."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from convgpu.authz.requests import go_json
from convgpu.authz.subject.large_calls import LargeCalls
from convgpu.authz.verdict import Denied


def volumes(count: int) -> dict[str, Any]:
    return {"Image": "x", "HostConfig": {"Binds": [f"v{number}:/x{number}" for number in range(count)]}}


@pytest.mark.parametrize("name", ["guard", "strict"])
def test_a_container_names_so_many_things_and_no_more(request: Any, name: str) -> None:
    harness = request.getfixturevalue("harness" if name == "guard" else "strict")
    few, many = harness.judge(volumes(512)), harness.judge(volumes(513))
    assert (few.rule != "too-many", many.rule) == (True, "too-many")
    assert len([kind for kind, _ in harness.engine.asked if kind == "volume"]) == 512


def container(rows: list[Any], name: str) -> dict[str, Any]:
    return {"Image": "x", "HostConfig": {name: rows}}


def service(rows: list[Any], name: str) -> dict[str, Any]:
    return {"Name": "s", "TaskTemplate": {"ContainerSpec": {"Image": "x", name: rows}}}


def resources(rows: list[Any], name: str) -> dict[str, Any]:
    return {"TaskTemplate": {"ContainerSpec": {"Image": "x"}, "Resources": {"Reservations": {name: rows}}}}


@pytest.mark.parametrize(
    ("make", "name"),
    [
        *((container, name) for name in ("Mounts", "Binds", "Devices", "DeviceCgroupRules", "VolumesFrom")),
        *((container, name) for name in ("DeviceRequests", "BlkioWeightDevice", "BlkioDeviceReadBps")),
        *((service, name) for name in ("Mounts", "Secrets", "Configs")),
        (resources, "GenericResources"),
    ],
)
def test_things_are_counted_before_anything_is_made_of_them(
    harness: Any, make: Callable[[list[Any], str], dict[str, Any]], name: str
) -> None:
    """The last row is of no type that a reader bears: 333,333 mounts took 7 s, and as many requests passed."""
    uri = "/containers/create" if make is container else "/services/create"
    assert harness.judge(make([None] * 511 + [7], name), uri).rule == "body-ambiguous"
    assert harness.judge(make([None] * 512 + [7], name), uri).rule == "too-many"


def test_the_names_in_device_requests_count(harness: Any) -> None:
    def asking(names: int) -> dict[str, Any]:
        return container([{"Driver": "cdi", "DeviceIDs": ["a"] * (names // 2)}] * 2, "DeviceRequests")

    assert (harness.judge(asking(510)).rule, harness.judge(asking(512)).rule) == ("gpu-needs-limit", "too-many")


@pytest.mark.parametrize("place", ["HostConfig", "beside", "alone"])
def test_a_name_is_folded_once_and_not_for_each_field(strict: Any, monkeypatch: Any, place: str) -> None:
    """111,000 unknown names took 2 s; they are folded once more to tell that they are unknown."""
    folded, fold = [], go_json.fold
    monkeypatch.setattr(go_json, "fold", lambda name: folded.append(name) or fold(name))
    junk = {f"{number}": 0 for number in range(1000)}
    host = (
        {"HostConfig": junk} if place == "HostConfig" else {**junk, **({} if place == "alone" else {"HostConfig": {}})}
    )
    assert strict.judge({"Image": "x", **host}).rule == "no-gpu"
    assert max(map(folded.count, junk)) <= 2


def test_a_name_among_many_is_found_in_any_spelling_and_refused_in_two(harness: Any) -> None:
    more = {f"{number}": 0 for number in range(100)}
    asks = {**more, "device\u212aequests": 1, "DeviceReque\u017ft\u017f": [{}]}
    assert harness.judge({"HostConfig": asks}).rule == "gpu-needs-limit"
    twice = harness.judge({"HostConfig": {**asks, "deviceRequests": [], "devicerequests": []}})
    assert twice.message.endswith("names the same field twice: 'DeviceReque\u017ft\u017f', 'deviceRequests'.")
    # Of a field that nobody reads it is no matter.
    assert harness.judge({"HostConfig": {**more, "odd": 1, "Odd": 2}}).rule == "no-gpu"


def test_volumes_of_its_image_count_under_strict_rules(strict: Any) -> None:
    """8,000 of an image that was loaded: each call about the container took 14 s to judge."""
    rules = []
    for count in (12, 13):
        strict.engine.images["x"] = {"Config": {"Volumes": {f"/i{number}": {} for number in range(count)}}}
        rules.append(strict.judge(volumes(500)).rule)
    assert (rules[0] != "too-many", rules[1]) == (True, "too-many")


def test_a_silent_engine_is_asked_about_one_volume(harness: Any) -> None:
    harness.engine.down = True
    harness.judge(volumes(300))
    assert [kind for kind, _ in harness.engine.asked if kind == "volume"] == ["volume"]


def occupy(calls: LargeCalls, count: int, over: threading.Event) -> list[threading.Thread]:
    """Have so many threads in their turns, until it is over."""
    begun = threading.Semaphore(0)

    def work() -> None:
        with calls.turn(things=9):
            begun.release()
            over.wait()

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for _ in threads:
        begun.acquire()
    return threads


@pytest.fixture
def crowd() -> Any:
    """Four large calls that are being judged; another one waits for nothing."""
    calls, over = LargeCalls(patience=0.0), threading.Event()
    threads = occupy(calls, 4, over)
    yield calls
    over.set()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("size", [{"things": 9}, {"size": 65537}])
def test_a_large_call_waits_for_its_turn_and_not_for_ever(crowd: LargeCalls, size: dict[str, int]) -> None:
    with pytest.raises(Denied) as refused, crowd.turn(**size):
        pass
    assert refused.value.refusal.rule == "crowded"


def test_a_small_call_passes_large_ones(crowd: LargeCalls) -> None:
    with crowd.turn(things=8, size=65536):
        pass


def test_a_thread_with_a_turn_needs_no_second() -> None:
    calls = LargeCalls(patience=0.0)

    def nest(depth: int, then: Callable[[], None]) -> None:
        with calls.turn(things=9):
            nest(depth - 1, then) if depth else then()

    nest(8, lambda: None)
    over = threading.Event()
    threads = occupy(calls, 4, over)  # all are free again
    over.set()
    for thread in threads:
        thread.join()


def test_what_has_a_long_path_counts_as_several_things(strict: Any) -> None:
    """Each part of a path is a look: four calls of 12 such devices held up those of others for 12 s."""
    rules = []
    for count in (32, 33):
        devices = [{"PathOnHost": f"/dev/{number:02}{'/a' * 2000}"} for number in range(count)]
        rules.append(strict.judge({"Image": "x", "HostConfig": {"Devices": devices}}).rule)
    assert (rules[0] != "too-many", rules[1]) == (True, "too-many")


def test_a_folder_with_too_much_in_it_is_denied_and_says_so(harness: Any) -> None:
    """Not that the container asks for a GPU: its user sees none."""
    harness.devices.large.add("/srv/x")
    large = {"Devices": [{"PathOnHost": "/dev/fuse"}, {"PathOnHost": "/srv/x"}]}
    assert harness.judge({"HostConfig": large}).message == (
        "gpu-needs-limit: --device /srv/x has too many names, links or devices in it to tell whether a GPU is among "
        "them, so it counts as a GPU, which needs a limit.\n"
        "Name the devices themselves (--device FOLDER/DEVICE), or a folder with a few thousand names at most."
    )
    options = {"DriverConfig": {"Name": "convgpu", "Options": {"memory": "2g"}}}
    limit = {"Type": "volume", "Target": "/run/convgpu", "VolumeOptions": options}
    variables = ["LD_PRELOAD=/run/convgpu/libconvgpu.so"]
    assert harness.judge({"HostConfig": {**large, "Mounts": [limit]}, "Env": variables}).rule == "limited"
    asked = {"HostConfig": {**large, "DeviceRequests": [{"Count": -1}]}}
    assert "asks for a GPU (--gpus" in harness.judge(asked).message
