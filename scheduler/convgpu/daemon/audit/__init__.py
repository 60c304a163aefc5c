"""The audit: what NVML counts, compared with the ledger.

- `loop`: runs the audit.
- `sampling`: asks NVML.
- `container_resolver`, `attributor`: find the owners of memory.
- `capacity`: follows with what may be handed out.
- `enforcement`: says when; `overuse`, `unlimited`, `ends`: act on containers above their limit, and on those that
  have none.
- `holdings`: writes figures into the database.
- `refusals`: judges allocations that the driver refused.
- `report`: is what others read.
"""
