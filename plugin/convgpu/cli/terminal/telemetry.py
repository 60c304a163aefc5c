"""What a GPU does, in a few words. Pure."""

from convgpu.protocol.records import Telemetry


def telemetry_cells(row: Telemetry) -> tuple[str, str, str]:
    """Return utilization, temperature and power; empty is what the GPU does not report."""
    power = "" if row.power is None else f"{row.power:.0f}W"
    if power and row.power_limit is not None:
        power = f"{row.power:.0f}/{row.power_limit:.0f}W"
    return (
        "" if row.utilization is None else f"{row.utilization}%",
        "" if row.temperature is None else f"{row.temperature}C",
        power,
    )
