"""Administration requests (docs/protocol.md, Administration), declared once for both ends.

Each names the type of its answer, one of `records`. Clients send them (`convgpu.client`); the scheduler reads them and
carries them out (`convgpu.daemon.admin_api.server`). Constructors check nothing; `read_request` does.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Generic, TypeVar, get_args

import msgspec

from convgpu.protocol import records
from convgpu.protocol.inspection import records as inspection
from convgpu.protocol.inspection import usage
from convgpu.protocol.validation import explain

# Docker's own rule for names of volumes, with room for the names that Swarm makes of templates. \Z, because $ would
# let a line break pass.
VolumeName = Annotated[str, msgspec.Meta(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.-]*\Z", max_length=255)]
MountId = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
OptionName = Annotated[str, msgspec.Meta(max_length=64)]
LONGEST_OPTION: Final = 4096  # characters
OptionValue = Annotated[str, msgspec.Meta(max_length=LONGEST_OPTION)]
Person = Annotated[str, msgspec.Meta(max_length=64, pattern=r"^[^\x00-\x1f]*\Z")]
LabelText = Annotated[str, msgspec.Meta(max_length=128)]
Cause = Annotated[str, msgspec.Meta(max_length=64, pattern=r"^[!-~]*\Z")]

FOREVER: Final = "forever"  # in place of the longest pause: none

AnswerT = TypeVar("AnswerT", bound=records.Record)


class InvalidRequestError(ValueError):
    """Bytes that are no request; the text names the field and what is expected of it."""


class Request(
    msgspec.Struct,
    Generic[AnswerT],
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="op",
):
    """What all requests have; the type parameter is the type of the answer.

    Attributes:
        cause: correlation id of the client's own request, for log and history (`convgpu.logs`).
    """

    cause: Cause = ""

    @classmethod
    def answer_type(cls) -> type[AnswerT]:
        """Return the type of the answer."""
        [base] = cls.__orig_bases__  # type: ignore[attr-defined]
        [answer] = get_args(base)
        return answer  # type: ignore[no-any-return]

    @property
    def operation(self) -> str:
        """The value of `op`, as it goes over the wire."""
        return str(self.__struct_config__.tag)


class CreateVolume(Request[records.Done], frozen=True, tag="create"):
    """Make a container's volume; options as the user gave them.

    Attributes:
        until: Unix seconds, after which the asker has given up: then nothing is made, or it is undone. 0: it waits.
    """

    name: VolumeName
    options: dict[OptionName, OptionValue] = {}
    until: float = 0.0


class RemoveVolume(Request[records.Done], frozen=True, tag="remove"):
    """Remove a volume and everything that is stored for it but the history."""

    name: VolumeName


class MountVolume(Request[records.Mounted], frozen=True, tag="mount"):
    """A container that has the volume starts; `id` is the Engine's for this mount."""

    name: VolumeName
    id: MountId


class UnmountVolume(Request[records.Done], frozen=True, tag="unmount"):
    """The mount `id` ends."""

    name: VolumeName
    id: MountId


class ListContainers(Request[records.Containers], frozen=True, tag="containers"):
    """List all containers, or the one with the volume `name`."""

    name: VolumeName | None = None


class ListActiveContainers(Request[records.ActiveContainers], frozen=True, tag="active-containers"):
    """List the containers that run or wait, with what figures of them need, and count the others."""


class ListDevices(Request[records.Devices], frozen=True, tag="devices"):
    """List the devices."""


class ReadEvents(Request[records.Events], frozen=True, tag="events"):
    """The newest events, from the sequence number `since` on."""

    since: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] = 1


class ReadHistory(Request[records.History], frozen=True, tag="history"):
    """The stored history, newest last, as far back as the database goes.

    Attributes:
        container: name of a volume, or None for all.
        kinds: of events (`EventKind`), or empty for all.
        after: Unix seconds; only later events.
        limit: at most this number of the newest.
    """

    container: VolumeName | None = None
    kinds: tuple[str, ...] = ()
    after: float | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1000


class ReadUsage(Request[usage.Usage], frozen=True, tag="usage"):
    """The usage of GPUs over time.

    Attributes:
        step: seconds that a sample stands for, one of `usage.STEPS`.
        after: Unix seconds; only samples that begin later.
    """

    step: usage.Step = 1
    after: Annotated[int, msgspec.Meta(ge=0, le=(1 << 62))] = 0


class ListAllocations(Request[inspection.Allocations], frozen=True, tag="allocations"):
    """Ask the processes of a container for their live allocations.

    Attributes:
        name: of the volume.
        most: at most this number of them, shared out among the processes.
    """

    name: VolumeName
    most: Annotated[int, msgspec.Meta(ge=1, le=65_536)] = 10_000


class FollowCalls(Request[inspection.Trace], frozen=True, tag="trace"):
    """Follow the calls of a container that take memory; the calls end to be reported when nobody has asked for 3 s.

    Attributes:
        name: of the volume.
        since: sequence number of the first call that is wanted.
    """

    name: VolumeName
    since: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] = 0


class SetLimits(Request[records.LimitChanges], frozen=True, tag="set"):
    """Change the limits of a container, its longest pause, its priority; `by`: who says so.

    `memory`, `wait` and `priority` as the options of a volume, None: as it is. `wait` may be FOREVER.
    """

    name: VolumeName
    memory: OptionValue | None = None
    wait: OptionValue | None = None
    priority: OptionValue | None = None
    by: Person = ""


class DrainDevice(Request[records.Done], frozen=True, tag="drain"):
    """Stop giving new grants on a device (UUID or index), or give them again."""

    device: str
    drained: bool
    by: Person = ""


class SuspendContainer(Request[records.Done], frozen=True, tag="suspend"):
    """Stop a container and move its memory to the host, until it is resumed.

    `deep`: what cannot be moved piece by piece leaves as well, by the driver's checkpoint.
    """

    name: VolumeName
    deep: bool = False


class ResumeContainer(Request[records.Done], frozen=True, tag="resume"):
    """Let a suspended container run again when its turn comes."""

    name: VolumeName


class ChoosePolicy(Request[records.PolicyChoice], frozen=True, tag="policy"):
    """Change the policy; None changes nothing and returns it."""

    policy: str | None = None
    by: Person = ""


class ChoosePlacement(Request[records.PolicyChoice], frozen=True, tag="placement"):
    """Change the policy of placement; None changes nothing and returns it."""

    policy: str | None = None
    by: Person = ""


class ListedContainer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A container as the Engine lists it.

    Attributes:
        state: one of `EngineState`, or that of a newer Engine.
        volumes: names of its volumes.
        labels: those that are shown (`convgpu.protocol.labels`).
    """

    id: str
    name: str
    state: str
    image: str = ""
    volumes: tuple[str, ...] = ()
    labels: dict[LabelText, LabelText] = {}


class ReportEngineList(Request[records.Done], frozen=True, tag="listed"):
    """What the Engine lists: all containers that have a volume of ours, whatever their state.

    A container that is being started is mounted, and listed with its old state (`created`, `exited`) for as long as
    that takes. The Engine asks the plugin for its volumes, so `volumes` lacks none that the plugin has. Containers of
    `convgpu-runtime` are no volumes to Docker: of them only `containers` tells.

    Attributes:
        asked: Unix seconds, before the Engine was asked; the list says nothing about later mounts.
        volumes: names of all volumes of ours that the Engine knows.
    """

    asked: float
    containers: tuple[ListedContainer, ...]
    volumes: tuple[str, ...]


class ReportNames(Request[records.Done], frozen=True, tag="names"):
    """How the Engine names a container that starts; volumes that nobody knows are no error."""

    container: ListedContainer


class UnlimitedVerdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether a container that uses a GPU without a limit may be ended.

    Attributes:
        id: the Engine's.
        started: as the scheduler said it (`records.Unlimited`); the verdict is about no other start.
        kept: why it is not ended; empty: nothing permits it.
    """

    id: MountId
    started: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
    kept: OptionValue


class JudgeUnlimited(Request[records.Done], frozen=True, tag="judge"):
    """What the plugin knows of containers that use a GPU without a limit (`records.Device.unlimited`).

    A scheduler that hears nothing of a container does not end it.
    """

    verdicts: tuple[UnlimitedVerdict, ...]


AnyRequest = (
    CreateVolume
    | RemoveVolume
    | MountVolume
    | UnmountVolume
    | ListContainers
    | ListActiveContainers
    | ListDevices
    | ReadEvents
    | ReadHistory
    | ReadUsage
    | ListAllocations
    | FollowCalls
    | SetLimits
    | DrainDevice
    | ChoosePolicy
    | ChoosePlacement
    | SuspendContainer
    | ResumeContainer
    | ReportEngineList
    | ReportNames
    | JudgeUnlimited
)
_OPERATIONS: Final = tuple(str(request.__struct_config__.tag) for request in get_args(AnyRequest))
# Made here, while there is one thread: msgspec works a type out at its first use, and crashes where another thread uses
# the same type meanwhile (docs/decisions/0229).
_DECODER: Final[msgspec.json.Decoder[AnyRequest]] = msgspec.json.Decoder(AnyRequest)
_ANSWERS: Final[Mapping[type[Request[Any]], msgspec.json.Decoder[Any]]] = {
    request: msgspec.json.Decoder(request.answer_type()) for request in get_args(AnyRequest)
}


def read_request(body: bytes) -> AnyRequest:
    """Return the request that a JSON text is.

    Raises:
        InvalidRequestError: it is none.
    """
    try:
        return _DECODER.decode(body)
    except msgspec.ValidationError as error:
        place, problem = explain(error)
        known = f"; known: {', '.join(_OPERATIONS)}" if place == "op" else ""
        raise InvalidRequestError(f"{place or 'request'}: {problem}{known}") from error
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InvalidRequestError(f"request: {error}") from error


def write_request(request: Request[Any]) -> bytes:
    """Return a request as JSON.

    Raises:
        InvalidRequestError: a text or a number has no form in JSON.
    """
    try:
        return msgspec.json.encode(request)
    except (ValueError, OverflowError) as error:
        raise InvalidRequestError(f"{request.operation}: {error}") from error


def read_answer(request: Request[AnswerT], text: bytes) -> AnswerT:
    """Return the answer to a request, of which this is the JSON text.

    Raises:
        ValueError: it is none of the request's type.
    """
    return _ANSWERS[type(request)].decode(text)  # type: ignore[no-any-return]
