"""The records of the command line are those of the protocol, read leniently."""

import pytest
from pydantic import BaseModel

from convgpu.cli import records
from convgpu.protocol import admin


@pytest.mark.parametrize(
    ("ours", "declared"),
    [
        (records.Container, admin.Container),
        (records.Share, admin.DeviceUsage),
        (records.Session, admin.Session),
        (records.SessionShare, admin.SessionUsage),
        (records.Waiting, admin.WaitingAllocation),
        (records.Device, admin.Device),
    ],
)
def test_each_record_has_the_fields_that_the_protocol_declares(
    ours: type[BaseModel], declared: type[BaseModel]
) -> None:
    assert list(ours.model_fields) == list(declared.model_fields)


def test_a_field_of_a_later_scheduler_is_passed_over() -> None:
    answer = {"uuid": "GPU-a", "limit": 3, "grant": 2, "usage": 1, "new": True}
    assert records.Share.model_validate(answer) == records.Share(uuid="GPU-a", limit=3, grant=2, usage=1)
