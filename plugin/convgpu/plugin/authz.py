"""Whether a call of the Engine's API may pass: a container that would use a GPU must carry a ConvGPU volume.

Only `POST /containers/create` is judged. Everything else passes before anything of it is parsed.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from convgpu.plugin import go_json
from convgpu.plugin.container_request import read_container_request

# More than the Engine's router accepts (it wants no doubled and no trailing slash), never less.
_CREATE: Final = re.compile(r"(?:/+v[^/]*)?/+containers/+create/*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision.

    Attributes:
        allow: whether the call may pass.
        rule: name of the rule that decided.
        message: for the user; empty when the call may pass.
    """

    allow: bool
    rule: str
    message: str = ""


NOT_JUDGED: Final = Verdict(allow=True, rule="not-judged")
_NO_GPU: Final = Verdict(allow=True, rule="no-gpu")
_LIMITED: Final = Verdict(allow=True, rule="limited")


def deny(rule: str, text: str) -> Verdict:
    """Return a denial whose message begins with the rule's name."""
    return Verdict(allow=False, rule=rule, message=f"{rule}: {text}")


def is_judged(method: str, uri: str) -> bool:
    """Tell whether the call creates a container, in any spelling that the Engine's router understands."""
    if method.upper() != "POST":
        return False
    try:
        path = urlsplit(uri).path
    except ValueError:
        # Python refuses hosts that Go accepts; such a call is judged by its body.
        return True
    return _CREATE.fullmatch(unquote(path, errors="replace")) is not None


def judge(method: str, uri: str, body: bytes, name: str, knows_volume: Callable[[str], bool]) -> Verdict:
    """Decide about one call.

    Args:
        method: HTTP method.
        uri: as the client sent it.
        body: of the call; empty if the Engine keeps it back.
        name: the plugin's name in the Engine.
        knows_volume: tells whether an existing volume is one of ours; asked only if nothing else tells.
    """
    if not is_judged(method, uri):
        return NOT_JUDGED
    try:
        document = go_json.parse(body) if body else {}
        if not document:
            return deny(
                "body-withheld",
                "the Engine does not show what the container asks for, so it may be a GPU without a limit.\n"
                "It keeps back a body of more than 1 MiB; make the request smaller and repeat it.",
            )
        request = read_container_request(document)
        gpu = request.gpu()
        if gpu is None:
            return _NO_GPU
        if request.carries_volume(name, knows_volume):
            return _LIMITED
    except go_json.Ambiguous as error:
        return deny("body-ambiguous", f"the request can be read in two ways, or in none: {error}.")
    return deny("gpu-needs-limit", _how_to_limit(gpu, name))


def _how_to_limit(gpu: str, name: str) -> str:
    mount = f"--mount type=volume,volume-driver={name},volume-opt=memory=2g,dst=/run/convgpu"
    return (
        f"the container asks for a GPU ({gpu}) and carries no ConvGPU volume, so nothing limits its GPU memory.\n"
        f"Type: docker run --gpus all {mount} -e LD_PRELOAD=/run/convgpu/libconvgpu.so IMAGE"
        f"  or: convgpu run --gpu-memory 2g IMAGE"
    )
