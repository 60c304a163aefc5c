"""Policies: pure functions that choose, one folder for each kind.

`memory` orders the allocations that wait for memory. `eviction` (which container's memory leaves the device) and
`placement` (which device a container gets) will have folders beside it.
"""
