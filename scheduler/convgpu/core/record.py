"""The base of events and effects: plain data that a recording can hold."""

import msgspec


class Record(msgspec.Struct, frozen=True, tag_field="type", tag=True, forbid_unknown_fields=True):
    """An event or an effect. In a recording `type` is the name of its class."""
