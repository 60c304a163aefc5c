"""hook/include/convgpu/protocol.h and convgpu.protocol.wire say the same, as the compiler sees it."""

import json
import subprocess
from pathlib import Path

import pytest

from convgpu.protocol import wire
from convgpu.protocol.inspection.messages import ALL, EXPECTED
from convgpu.protocol.residency import porter
from convgpu.protocol.residency.porter import PorterKind
from convgpu.protocol.wire import (
    AbleFlag,
    AllocateFlag,
    Failure,
    Kind,
    Mover,
    ObservedFlag,
    Outcome,
    PageAble,
    PageFlag,
    Reason,
)

ROOT = Path(__file__).resolve().parents[2]

PROBE = r"""
#include "convgpu/carrier.h"
#include "convgpu/page.h"
#include "convgpu/protocol.h"
#include <stdio.h>
#define NUMBER(name, number) printf(",\"%s\":%d", #name, (int)(number));
#define FIELD(type, name) printf(",[\"%s\",\"%s\",%d,%zu]", #type, #name, 1, offsetof(struct PROBED, name));
#define ARRAY(type, name, count) \
    printf(",[\"%s\",\"%s\",%d,%zu]", #type, #name, (int)(count), offsetof(struct PROBED, name));
int main(void) {
    printf("{\"version\":%u,\"max_frame\":%u", CONVGPU_PROTOCOL_VERSION, CONVGPU_MAX_FRAME);
    printf(",\"kinds\":{\"\":0"); CONVGPU_KINDS(NUMBER) printf("}");
    printf(",\"reasons\":{\"\":0"); CONVGPU_REASONS(NUMBER) printf("}");
    printf(",\"failures\":{\"\":0"); CONVGPU_FAILURES(NUMBER) printf("}");
    printf(",\"movers\":{\"\":0"); CONVGPU_MOVERS(NUMBER) printf("}");
    printf(",\"outcomes\":{\"\":0"); CONVGPU_OUTCOMES(NUMBER) printf("}");
    printf(",\"porter_kinds\":{\"\":0"); CONVGPU_PORTER_KINDS(NUMBER) printf("}");
    printf(",\"carrier_version\":%u,\"piece_size\":%lu", CONVGPU_CARRIER_VERSION, (unsigned long)CONVGPU_PIECE_SIZE);
    printf(",\"flags\":[%u,%u,%u,%u,%u,%u,%u,%u,%u,%u,%u,%u,%u]", CONVGPU_PAGE_ELASTIC, CONVGPU_PAGE_CHOSEN,
           CONVGPU_PAGE_WITHDRAW, CONVGPU_PAGE_UNIFIED, CONVGPU_PAGE_EXPORTS, CONVGPU_ALLOCATE_REFUSED,
           CONVGPU_ALLOCATE_FIXED, CONVGPU_ABLE_MEMBARRIER, CONVGPU_ABLE_CAPTURES, CONVGPU_ABLE_IDLE,
           CONVGPU_OBSERVED_CHOSEN,
           CONVGPU_ABLE_LIST, CONVGPU_ABLE_EXPLAINED);
    printf(",\"instances\":[%u,%u]", CONVGPU_EXPORT_EXPECTED, CONVGPU_EXPORT_ALL);
    printf(",\"structs\":{\"\":0");
@STRUCTS@
    printf("}}\n");
    return 0;
}
"""
ONE_STRUCT = r"""
#define PROBED convgpu_@name@
    printf(",\"%s\":[%zu", "@name@", sizeof(struct PROBED)); CONVGPU_@NAME@_FIELDS(FIELD, ARRAY) printf("]");
#undef PROBED
"""


ALL_STRUCTS = wire.STRUCTS | porter.STRUCTS


def compile_and_run(source: str, folder: Path) -> dict[str, object]:
    (folder / "probe.c").write_text(source)
    subprocess.run(
        ["cc", "-std=c11", "-I", ROOT / "hook/include", "-o", folder / "probe", folder / "probe.c"],
        check=True,
    )
    return json.loads(subprocess.run([folder / "probe"], check=True, capture_output=True).stdout)


@pytest.fixture(scope="module")
def declared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    structs = "".join(ONE_STRUCT.replace("@name@", name).replace("@NAME@", name.upper()) for name in ALL_STRUCTS)
    return compile_and_run(PROBE.replace("@STRUCTS@", structs), tmp_path_factory.mktemp("probe"))


def test_version_and_limits(declared: dict[str, object]) -> None:
    assert (declared["version"], declared["max_frame"]) == (wire.VERSION, wire.MAX_FRAME)


def test_flags(declared: dict[str, object]) -> None:
    assert declared["flags"] == [
        flag.value for flags in (PageFlag, AllocateFlag, AbleFlag, ObservedFlag, PageAble) for flag in flags
    ]


def test_what_stands_for_no_instance(declared: dict[str, object]) -> None:
    assert declared["instances"] == [EXPECTED, ALL]


@pytest.mark.parametrize(
    ("key", "numbers"),
    [
        ("kinds", Kind),
        ("reasons", Reason),
        ("failures", Failure),
        ("movers", Mover),
        ("outcomes", Outcome),
        ("porter_kinds", PorterKind),
    ],
)
def test_numbers(declared: dict[str, object], key: str, numbers: type[Kind]) -> None:
    assert declared[key] == {"": 0} | {number.name: number.value for number in numbers}


def test_structs(declared: dict[str, object]) -> None:
    expected: dict[str, object] = {"": 0}
    for name, fields in ALL_STRUCTS.items():
        offset, rows = 0, []
        for c_type, field, count in fields:
            rows.append([c_type, field, count, offset])
            offset += count * {"B": 1, "s": 1, "H": 2, "I": 4, "Q": 8}[wire.TYPE_CODES[c_type]]
        expected[name] = [offset, *rows]
    assert declared["structs"] == expected


def test_packers_have_the_declared_sizes() -> None:
    assert len(porter.pack_pool(1)) == 16
    assert len(porter.pack_session(1, 2, 3, 4, (bytes(16), bytes(16)))) == 40 + 2 * 16
    assert len(porter.pack_allow(1, 2)) == 24
    for name, fields in wire.STRUCTS.items():
        sizes = (
            count * {"B": 1, "s": 1, "H": 2, "I": 4, "Q": 8}[wire.TYPE_CODES[c_type]] for c_type, _, count in fields
        )
        assert wire.layout(name).size == sum(sizes)


def test_the_carrier_has_the_same_constants(declared: dict[str, object]) -> None:
    assert (declared["carrier_version"], declared["piece_size"]) == (porter.VERSION, porter.PIECE_SIZE)


def test_the_header_declares_no_struct_that_python_does_not_know() -> None:
    text = (ROOT / "hook/include/convgpu/protocol.h").read_text()
    listed = [line.split("(")[1].split(",")[0] for line in text.splitlines() if line.startswith("    S(")]
    assert listed == list(wire.STRUCTS)


def test_the_namespace_has_no_init_file() -> None:
    """With one, the other half of the namespace vanishes."""
    assert not list(ROOT.glob("*/convgpu/__init__.py"))
