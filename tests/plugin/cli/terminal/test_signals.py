"""A signal ends a loop that waits, in whatever moment it comes."""

import subprocess
import sys

# Each line that a wait runs is a moment for the signal: a lock that the wait holds then is never given back.
PROGRAM = """
import signal, sys
from convgpu.cli.cluster import controller

class Loop:
    def __init__(self, moment): self.left = moment
    def turn(self):
        sys.settrace(self.line)
        sys._getframe(1).f_trace = self.line
    def line(self, frame, event, _value):
        self.left -= event == "line"
        if self.left == 0:
            sys.settrace(None)
            signal.raise_signal(number)
        return self.line

for number in signal.SIGTERM, signal.SIGINT:
    for moment in range(1, 30):
        controller._run(Loop(moment), 0)
        sys.settrace(None)
"""


def test_a_signal_ends_a_wait_at_any_of_its_lines() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=60, stdout=subprocess.DEVNULL)
