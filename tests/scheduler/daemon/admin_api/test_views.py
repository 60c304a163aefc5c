"""A list of thousands of containers leaves others their turns."""

import asyncio
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from convgpu.daemon.admin_api.views import Views


def container(name: str) -> SimpleNamespace:
    return SimpleNamespace(volume=SimpleNamespace(name=name, created=float(name)))


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch) -> Views:
    """Of 500 containers, whose rows are their names."""
    made = Views(Mock(), Mock(), Mock(), (), Mock(), Mock(), Mock())
    made._pauses.containers = made._containers = SimpleNamespace(
        by_name={f"{n}": container(f"{n}") for n in range(500)}
    )
    monkeypatch.setattr(made, "_waiting", dict)
    monkeypatch.setattr(made, "_container", lambda one, _waiting: one.volume.name)
    return made


def test_others_have_their_turns_between_rows(views: Views) -> None:
    async def work() -> tuple[int, int]:
        turns, listing = 0, asyncio.get_running_loop().create_task(views.containers())
        while not listing.done():
            turns += 1
            await asyncio.sleep(0)
        return turns, len(listing.result().containers)

    turns, rows = asyncio.run(work())
    assert rows == 500
    assert turns >= 10


def test_who_is_removed_meanwhile_has_no_row(views: Views) -> None:
    async def work() -> tuple[object, ...]:
        listing = asyncio.get_running_loop().create_task(views.containers())
        await asyncio.sleep(0)
        known = views._containers.by_name
        del known["499"]
        known["498"] = container("498")  # made anew
        known["500"] = container("500")
        return (await listing).containers

    assert asyncio.run(work()) == tuple(f"{n}" for n in range(498))
