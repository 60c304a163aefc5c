# SPDX-License-Identifier: Apache-2.0
"""Check that the hook's folders are one straight stack: no include and no symbol points upwards, and no circle.

    check-hook-layers [FOLDER]      FOLDER holds src/ and the Makefile; default: hook/

A unit is a source with its header. Includes are read from the sources; symbols from the objects, which are built
first: a unit that leaves a symbol undefined uses the unit that defines it, whatever it includes.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

STACK = (
    "claims",
    "base",
    "gpus",
    "tables",
    "requests",
    "scheduler",
    "listing",
    "visibility",
    "images",
    "promises",
    "accounting",
    "mapped",
    "exports",
    "gate",
    "backing",
    "unified",
    "pools",
    "residency",
    "functions",
    "code",
    "streams",
    "graphs",
    "calls",
    "nvml",
    "interpose",
)
"""Each folder uses itself and those before it."""

Unit = str
Uses = dict[tuple[Unit, Unit], str]
"""User and used unit, with the reason."""


def read_includes(source: Path) -> Uses:
    """Return who includes whom."""
    uses: Uses = {}
    for file in sorted(source.glob("*/*.[ch]")):
        user = str(file.relative_to(source).with_suffix(""))
        for included in re.findall(r'^#include "([^"]+)\.h"', file.read_text(), re.MULTILINE):
            if (source / f"{included}.h").exists() and included != user:
                uses[user, included] = f"{file.relative_to(source)} includes {included}.h"
    return uses


def read_symbols(build: Path, units: set[Unit]) -> Uses:
    """Return who uses a symbol of whom."""
    objects = {unit: build / f"{unit}.o" for unit in sorted(units) if (build / f"{unit}.o").exists()}
    defined: dict[str, Unit] = {}
    undefined: list[tuple[Unit, str]] = []
    units_of = {str(file): unit for unit, file in objects.items()}
    command = ["nm", "-A", "-g", "-P", *units_of]
    for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
        file, symbol, kind = line.split()[:3]
        unit = units_of[file.removesuffix(":")]
        if kind in "UwV":
            undefined.append((unit, symbol))
        else:
            defined[symbol] = unit
    return {
        (user, defined[symbol]): f"{user}.o uses {symbol} of {defined[symbol]}.o"
        for user, symbol in undefined
        if defined.get(symbol, user) != user
    }


def find_upward(uses: Uses) -> Iterator[str]:
    """Return a line for each use of a higher folder, and for each folder that is in no place of the stack."""
    for (user, used), reason in sorted(uses.items()):
        folders = [unit.partition("/")[0] for unit in (user, used)]
        unknown = [folder for folder in folders if folder not in STACK]
        if unknown:
            yield f"{unknown[0]}/ has no place in the stack: {reason}"
        elif STACK.index(folders[0]) < STACK.index(folders[1]):
            yield f"upwards, from {folders[0]}/ to {folders[1]}/: {reason}"


def find_circles(uses: Uses) -> Iterator[str]:
    """Return a line for each unit that uses itself through others: what is left when leaves are taken off."""
    left = set(uses)
    while ends := {used for _user, used in left} - {user for user, _used in left}:
        left = {(user, used) for user, used in left if used not in ends}
    while tops := {user for user, _used in left} - {used for _user, used in left}:
        left = {(user, used) for user, used in left if user not in tops}
    for use in sorted(left):
        yield f"in a circle: {uses[use]}"


def main() -> int:
    """Print each fault; the exit status is 1 if there is one."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2] / "hook"
    subprocess.run(["make", "-s", "-C", folder], check=True)
    source = folder / "src"
    units = {str(file.relative_to(source).with_suffix("")) for file in source.glob("*/*.[ch]")}
    uses = read_symbols(folder / "build", units) | read_includes(source)
    faults = [*find_upward(uses), *find_circles(uses)]
    print("\n".join(faults), end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
