"""Options as data, for click and for the quick path of `convgpu run`, which does without click (decision 143)."""

from __future__ import annotations

from convgpu.protocol.quick.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final


class OptionRow(Record):
    """One option.

    Attributes:
        names: as they are typed.
        key: the name of its value.
        help: the text in the help.
        metavar: its value in the help.
        check: returns the value as it counts; ValueError for a wrong one, whose text is for the user.
        choices: the only values, if any are named.
        default: the value where none is given.
        variable: of the environment, which gives the value where the line does not; empty: none.
        required: there has to be a value.
        is_flag: it takes no value.
    """

    names: tuple[str, ...]
    key: str
    help: str
    metavar: str | None = None
    check: Callable[[str], str] | None = None
    choices: tuple[str, ...] = ()
    default: str | None = None
    variable: str = ""
    required: bool = False
    is_flag: bool = False


VOLUME_DRIVER: Final = OptionRow(
    ("--gpu-volume-driver",),
    "driver",
    "The name of the ConvGPU plugin in the Engine.",
    "NAME",
    default="convgpu",
    variable="CONVGPU_NAME",
)
