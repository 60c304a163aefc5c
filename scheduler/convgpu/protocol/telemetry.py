"""What GPUs do, by NVML; a part of the answers in `convgpu.protocol.records`."""

import msgspec


class Telemetry(msgspec.Struct, frozen=True):
    """The activity of a GPU; None: this GPU does not report it, or does not answer.

    Attributes:
        utilization: percent of NVML's last sample period in which a kernel ran.
        temperature: of the GPU, in degrees Celsius.
        power, power_limit: watts; the limit is the one in force.
    """

    utilization: int | None = None
    temperature: int | None = None
    power: float | None = None
    power_limit: float | None = None
