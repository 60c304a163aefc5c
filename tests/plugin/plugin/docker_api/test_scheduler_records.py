"""What the judge asks the scheduler for can be sent."""

import msgspec

from convgpu.authz.site.rules import parse_rules
from convgpu.plugin.docker_api.authorization_status import SchedulerRecords
from convgpu.protocol.requests import SetLimits


class RecordingScheduler:
    def __init__(self):
        self.sent = []

    def ask(self, request):
        self.sent.append(msgspec.json.encode(request))


def test_the_default_limit_of_a_site_is_sent_as_a_limit():
    scheduler = RecordingScheduler()
    rules = parse_rules('default_limit = "3g"')
    SchedulerRecords(scheduler).set_limit("v", rules.default_limit)
    assert scheduler.sent == [msgspec.json.encode(SetLimits("v", "3g"))]
