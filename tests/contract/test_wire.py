"""hook/include/convgpu/protocol.h and convgpu.protocol.wire say the same, as the compiler sees it."""

import json
import subprocess
from pathlib import Path

import pytest

from convgpu.protocol import wire
from convgpu.protocol.wire import Failure, Kind, Reason

ROOT = Path(__file__).resolve().parents[2]

PROBE = r"""
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


def compile_and_run(source: str, folder: Path) -> dict[str, object]:
    (folder / "probe.c").write_text(source)
    subprocess.run(
        ["cc", "-std=c11", "-I", ROOT / "hook/include", "-o", folder / "probe", folder / "probe.c"],
        check=True,
    )
    return json.loads(subprocess.run([folder / "probe"], check=True, capture_output=True).stdout)


@pytest.fixture(scope="module")
def declared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    structs = "".join(ONE_STRUCT.replace("@name@", name).replace("@NAME@", name.upper()) for name in wire.STRUCTS)
    return compile_and_run(PROBE.replace("@STRUCTS@", structs), tmp_path_factory.mktemp("probe"))


def test_version_and_limits(declared: dict[str, object]) -> None:
    assert (declared["version"], declared["max_frame"]) == (wire.VERSION, wire.MAX_FRAME)


@pytest.mark.parametrize(("key", "numbers"), [("kinds", Kind), ("reasons", Reason), ("failures", Failure)])
def test_numbers(declared: dict[str, object], key: str, numbers: type[Kind]) -> None:
    assert declared[key] == {"": 0} | {number.name: number.value for number in numbers}


def test_structs(declared: dict[str, object]) -> None:
    expected: dict[str, object] = {"": 0}
    for name, fields in wire.STRUCTS.items():
        offset, rows = 0, []
        for c_type, field, count in fields:
            rows.append([c_type, field, count, offset])
            offset += count * {"B": 1, "s": 1, "H": 2, "I": 4, "Q": 8}[wire.TYPE_CODES[c_type]]
        expected[name] = [offset, *rows]
        assert wire.layout(name).size == offset
    assert declared["structs"] == expected


def test_the_header_declares_no_struct_that_python_does_not_know() -> None:
    text = (ROOT / "hook/include/convgpu/protocol.h").read_text()
    listed = [line.split("(")[1].split(",")[0] for line in text.splitlines() if line.startswith("    S(")]
    assert listed == list(wire.STRUCTS)


def test_the_namespace_has_no_init_file() -> None:
    """With one, the other half of the namespace vanishes."""
    assert not list(ROOT.glob("*/convgpu/__init__.py"))
