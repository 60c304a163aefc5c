"""The settings of `convgpud` (docs/architecture.md, Settings)."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Settings:
    """As `convgpud --help` describes them.

    `reserve` in bytes, `simulated_settle` in microseconds per GiB; `starvation_timeout`, `audit`, `overuse_after` and
    `history_age` in seconds; `history_rows` in events; `record`: the file in which events are recorded, None for none.
    `host_memory`: bytes for memory that leaves the devices, None for as much as can leave; `oversubscribe`: what may be
    promised of a device, as a multiple of its capacity; `granule`: the limit of a container that names none, empty for
    none; `switch_cost`: the share of the time that time slices may cost; `eviction`: name of the policy that chooses
    whose memory leaves; `rules`: the file with the rules of the site, which need not be there;
    `learn`: seconds without a higher peak after which a container is reckoned with that, None for never;
    `notice`: seconds of a pause after which its process says so on stderr, None for never.
    """

    directory: Path
    devices: str
    policy: str
    placement: str
    libraries: Path
    simulated_driver: Path
    simulated_settle: int
    host_root: Path
    reserve: int
    starvation_timeout: float
    audit: float
    overuse: str
    rules: Path
    overuse_after: float
    learn: float | None
    history_age: float
    history_rows: int
    record: Path | None
    porter: Path
    host_memory: int | None
    oversubscribe: float
    granule: str
    switch_cost: float
    eviction: str
    notice: float | None
