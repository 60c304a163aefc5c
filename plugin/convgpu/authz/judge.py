"""Judges each kind of call of the Engine's API."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from convgpu.authz.admission import Admission
from convgpu.authz.checks import ACCESS, bodies, calls, find_refusals, networks, strict_calls
from convgpu.authz.checks.host import local_volume
from convgpu.authz.checks.limits import new_volume
from convgpu.authz.checks.strict import (
    LOCAL_TYPES,
    local_volume_needs,
    needs,
    odd_volume,
    restart_needs,
    unlisted,
)
from convgpu.authz.checks.strict_paths import started_mounts
from convgpu.authz.facts.need_notes import NeedNotes
from convgpu.authz.facts.noted_starts import NotedStarts
from convgpu.authz.facts.owners import Owners
from convgpu.authz.facts.permits import OF_NO_GPU, Permits
from convgpu.authz.facts.prepared_programs import PreparedPrograms
from convgpu.authz.ports import EngineHolds, EngineUnreachable, Ports
from convgpu.authz.requests import go_json
from convgpu.authz.requests.host_config import endpoint_options, odd_updates
from convgpu.authz.requests.routes import Call, Kind
from convgpu.authz.site.rules import Rules
from convgpu.authz.site.strict_list import Need
from convgpu.authz.subject.found_names import FoundNames
from convgpu.authz.subject.large_calls import LargeCalls
from convgpu.authz.subject.reader import SubjectReader, is_same_plugin
from convgpu.authz.subject.subject import Caller, Subject
from convgpu.authz.verdict import Denied, Refusal, Verdict, allow

_OLD_API: Final = Refusal(
    "start-old-api", "before API 1.24 a start could change what the container is.\nUse a newer client."
)
_PLUGINS: Final = Refusal(
    "plugin-management",
    "a user who manages plugins can switch ConvGPU off, or give a plugin every GPU.\n"
    "An administrator of the rules of the site may; or root of the host, after `convgpu authz disable`.",
)
_SWARM: Final = Refusal(
    "swarm-management",
    "the other managers of a swarm could start containers here without a judgement.\n"
    "An administrator of the rules of the site may; or root of the host, after `convgpu authz disable`.",
)
# When the container with such a name goes between judgement and call, the Engine takes the name for the start of an ID.
_LIKE_AN_ID: Final = re.compile("/?[0-9a-f]+")
_ID_AS_NAME: Final = Refusal(
    "strict-names",
    "a name of hexadecimal digits alone can be taken for the ID of another container.\nName it otherwise.",
)
_UNKNOWN_CALL: Final = Refusal(
    "strict-calls",
    "ConvGPU does not know this call, so no entry permits it.\nAn administrator of the rules of the site may.",
)
_NOT_PREPARED: Final = Refusal(
    "strict-exec",
    "nobody, or somebody else, prepared this program under these rules.\n"
    "Repeat `docker exec`, which prepares and starts one.",
)
_WHAT_HOLDS: Final = (
    "so nobody can tell what it is: another call goes on, such as a start, a copy that nobody reads, one that waits at "
    "a FIFO in the place of its /etc/passwd, or the removal of any volume or image.\nTry again when that has ended."
)
_NOTHING: Final = "nothing-to-judge"
_NO_CONTAINER: Final = "no-such-container"


@dataclass(frozen=True, slots=True)
class Case:
    """One call.

    Attributes:
        call: read from its address.
        body: of it.
        caller: who made it.
        headers: by their names in lower case.
        found: the containers that it names.
    """

    call: Call
    body: bytes
    caller: Caller
    headers: Mapping[str, str] = field(default_factory=dict)
    found: FoundNames = field(default_factory=FoundNames)

    @property
    def is_strict(self) -> bool:
        """Whether a strict list is in force."""
        return self.caller.rules.strict_list is not None

    def document(self) -> dict[str, object]:
        """Return the body as JSON.

        Raises:
            Denied: there is none, or the Engine withholds it.
            go_json.Ambiguous: it can be read in two ways, or in none.
        """
        document = go_json.parse(self.body) if self.body else {}
        if not document:
            raise Denied(bodies.withheld(self.headers))
        return document


class Judge:
    """Judges calls; several threads may use it.

    Args:
        name: the plugin's name in the Engine.
        ports: the Engine, the host and the scheduler.
        owners: of the containers that were admitted.
        notes: what containers needed that started; none are kept without.
        programs: that were prepared for `docker exec`.
        permits: of containers that start although rules spoke against it.
    """

    def __init__(
        self,
        name: str,
        ports: Ports,
        owners: Owners,
        notes: NeedNotes | None = None,
        programs: PreparedPrograms | None = None,
        permits: Permits | None = None,
    ) -> None:
        self._name = name
        self._notes = notes
        self._programs = programs or PreparedPrograms()
        self._starts = NotedStarts(ports.engine, permits or Permits())
        self._engine = ports.engine
        self._large = LargeCalls()
        self._subjects = SubjectReader(name, ports, self._large)
        self._admission = Admission(ports.scheduler, owners, ports.engine)
        self._kinds: Mapping[Kind, Callable[[Case], Verdict]] = {
            Kind.CREATE: self._create,
            Kind.START: self._start,
            Kind.EXEC: self._exec,
            Kind.ARCHIVE: self._archive,
            Kind.UPDATE: self._update,
            Kind.VOLUME: self._volume,
            Kind.SERVICE: self._service,
            Kind.BUILD: self._build,
            Kind.PLUGIN: self._plugin,
            Kind.SWARM: lambda case: self._without_container(case, [_SWARM]),
            Kind.OTHER: self._other,
        }

    def judge(
        self, call: Call, body: bytes, user: str, rules: Rules, headers: Mapping[str, str] | None = None
    ) -> Verdict:
        """Decide about one call.

        Args:
            call: read from its address.
            body: of the call; empty if there is none, or if the Engine withholds it.
            user: the common name of the caller's certificate, or `local`.
            rules: of the site.
            headers: of the call, by their names in lower case.
        """
        try:
            with self._large.turn(size=len(body)):
                return self._judge(Case(call, body, Caller(user, rules), headers or {}))
        except Denied as denied:
            return denied.refusal.verdict()
        except go_json.Ambiguous as error:
            return Refusal("body-ambiguous", f"it can be read in two ways, or in none: {error}.").verdict()
        except EngineHolds as error:
            return Refusal("held", f"{error}, {_WHAT_HOLDS}").verdict()
        except EngineUnreachable as error:
            text = f"{error}; nobody can tell what the container is.\nIs CONVGPU_ENGINE right? `convgpu authz status`"
            return Refusal("engine-unavailable", text).verdict()

    def note(self, call: Call, answer: bytes, user: str, rules: Rules) -> None:
        """Note what the Engine has answered: a container starts no more; the user of a prepared program may start it.

        Args:
            call: whose end that is.
            answer: the Engine's.
            user: as for `judge`.
            rules: as for `judge`.
        """
        if call.kind is Kind.START:
            self._admission.answered(user, call.name)
        elif call.kind is Kind.EXEC and answer and rules.strict_list is not None:
            self._programs.add(go_json.text(go_json.parse(answer), "id"), user, rules.mode)

    def permit(self, call: Call) -> None:
        """Note a start that passes whatever the rules say: if it gets a GPU without a limit, it keeps it."""
        if call.kind is Kind.START:
            self._starts.permit(call.name)

    def _judge(self, case: Case) -> Verdict:
        if case.is_strict:
            bodies.refuse_hidden(case.headers, case.body, streams=case.call.streams)
            bodies.refuse_unreadable(case.body, case.call.query)
            unseen = bodies.unseen(case.headers)
            verdict = self._without_container(case, unlisted(self._subjects.without_container(case.caller), unseen))
            if not verdict.allow:
                return verdict
        verdict = self._kinds[case.call.kind](case)
        if not verdict.allow or not case.is_strict:
            return verdict
        still = None
        try:
            still = self._without_container(case, case.found.changed(self._engine))
        finally:  # the Engine may not answer about it
            if case.call.kind is Kind.START and (still is None or not still.allow):
                self._admission.answered(case.caller.user, case.call.name)
        return verdict if still.allow else still

    def _find(self, case: Case, name: str) -> Subject | None:
        subject = self._subjects.existing(name, case.caller)
        case.found.add(name, subject)
        return subject

    def _create(self, case: Case) -> Verdict:
        if case.is_strict and any(_LIKE_AN_ID.fullmatch(name) for name in case.call.query.get("name", ())):
            raise Denied(_ID_AS_NAME)
        return self._judge_container(self._subjects.requested(case.document(), case.caller))

    def _start(self, case: Case) -> Verdict:
        if case.call.older_than(1, 24):
            raise Denied(_OLD_API)
        bodies.refuse_awaited(case.headers, case.body, is_strict=case.is_strict)
        checkpoint = "checkpoint" in case.call.query
        if case.is_strict:
            wanted = strict_calls.start_needs(case.call.query)
            verdict = self._without_container(case, self._unlisted(case, *wanted))
            if not verdict.allow:
                return verdict
        subject = self._subjects.starting(case.call.name, case.caller, checkpoint=checkpoint)
        case.found.add(case.call.name, subject)
        if subject is None:
            self._admission.begin(case.caller.user, case.call.name)
            return allow(_NO_CONTAINER)
        return self._judge_container(subject, case.call)

    def _judge_container(self, subject: Subject, call: Call | None = None) -> Verdict:
        refusal = subject.first_refusal(find_refusals(subject))
        if refusal is None and subject.container.removes_itself and not subject.starts:
            refusal = self._admission.foresee(subject)
        if refusal is None and call is not None:
            # Last, because a container that is admitted counts from now on.
            refusal = self._admission.admit(subject, call)
            if refusal is None:
                exempted = any(refusal.rule not in OF_NO_GPU for refusal in find_refusals(subject))
                self._starts.note(subject.container.id, permitted=exempted)
            if refusal is None and self._notes is not None:
                wanted = ((need.section, need.value) for need in needs(subject))
                self._notes.add(wanted, subject.container.name or subject.container.id[:12])
        return allow(subject.permission) if refusal is None else refusal.verdict()

    def _exec(self, case: Case) -> Verdict:
        document = case.document()
        rows, privileged = go_json.texts(document, "env"), go_json.flag(document, "privileged")
        if not privileged and not calls.may_bypass_hook(rows) and not case.is_strict:
            return allow(_NOTHING)
        subject = self._find(case, case.call.name)
        if subject is None:
            return allow(_NO_CONTAINER)
        refusals = calls.exec_bypasses(subject, rows, privileged=privileged)
        return _verdict(subject, chain(_access(case, subject), refusals))

    def _archive(self, case: Case) -> Verdict:
        listed = list(self._unlisted(case, strict_calls.COPY))
        subject = self._find(case, case.call.name)
        if subject is None:
            return self._without_container(case, listed) if listed else allow(_NO_CONTAINER)
        paths = case.call.query.get("path", ())
        return _verdict(subject, chain(_access(case, subject), listed, calls.archive_paths(subject, paths)))

    def _start_prepared(self, case: Case) -> Verdict:
        """Judge the start of a program that an earlier call prepared: who prepared it may start it."""
        program = case.call.other.prepared
        if not self._programs.is_of(program, case.caller.user, case.caller.rules.mode):
            return self._without_container(case, [_NOT_PREPARED])
        document = self._engine.prepared(program) or {}
        subject = self._subjects.existing(go_json.text(document, "containerid"), case.caller)
        if subject is None:
            return allow(_NO_CONTAINER)
        privileged = go_json.flag(go_json.child(document, "processconfig"), "privileged")
        return _verdict(subject, chain(_access(case, subject), calls.exec_bypasses(subject, (), privileged=privileged)))

    def _update(self, case: Case) -> Verdict:
        # Each Engine changes by this only settings that have nothing to do with devices (docs/authorization.md).
        document = case.document()
        subject = self._find(case, case.call.name) if case.is_strict else None
        if subject is None:
            return allow(_NOTHING)
        restart = go_json.text(go_json.child(document, "restartpolicy"), "name")
        odd = (Need("fields", f"update {name}", f"docker update of {name}") for name in odd_updates(document))
        refusals = unlisted(subject, chain(restart_needs(subject, restart), odd))
        # By a restart policy the Engine does that again, of which nobody is asked.
        again = started_mounts(replace(subject, starts=restart not in {"", "no"}))
        return _verdict(subject, chain(_access(case, subject), refusals, again))

    def _volume(self, case: Case) -> Verdict:
        document = case.document()
        driver, options = go_json.text(document, "driver"), go_json.map_of_texts(document, "driveropts")
        if is_same_plugin(driver, self._name):
            subject = self._subjects.without_container(case.caller)
            return _verdict(subject, new_volume(subject, go_json.text(document, "name"), options))
        if driver not in LOCAL_TYPES:
            subject = self._subjects.without_container(case.caller)
            return _verdict(subject, unlisted(subject, iter([Need("drivers", driver, f"the volume driver {driver}")])))
        if go_json.field(document, "clustervolumespec"):
            return self._without_container(case, self._unlisted(case, Need("calls", "swarm", "a volume of Swarm")))
        if not options:
            return allow(_NOTHING)
        subject = self._subjects.volume(options, case.caller)
        listed = chain(odd_volume(options, subject), unlisted(subject, local_volume_needs(options)))
        return _verdict(subject, chain(listed, local_volume(options, subject)))

    def _service(self, case: Case) -> Verdict:
        document = case.document()
        task = go_json.child(document, "tasktemplate")
        if go_json.text(task, "runtime").lower() == "plugin" or go_json.child(task, "pluginspec"):
            return self._without_container(case, [_PLUGINS])
        listed = self._without_container(case, self._unlisted(case, Need("calls", "services", "a service of Swarm")))
        if not listed.allow:
            return listed
        verdict = self._judge_container(self._subjects.tasks(document, case.caller))
        if verdict.allow and "previous" in case.call.query.get("rollback", ()):
            # Then the Engine takes the service's previous specification, whatever the body says.
            previous = go_json.child(self._engine.service(case.call.name) or {}, "previousspec")
            verdict = self._judge_container(self._subjects.tasks(previous, case.caller))
        return verdict

    def _build(self, case: Case) -> Verdict:
        wanted = strict_calls.build_needs(case.call.action, case.call.query)
        classic = strict_calls.is_classic_build(case.call.action, case.call.query)
        refusals = calls.build_runtime(self._engine.facts().default_runtime, case.caller, classic=classic)
        return self._without_container(case, chain(refusals, self._unlisted(case, *wanted)))

    def _plugin(self, case: Case) -> Verdict:
        if not case.call.name.endswith("/push"):
            return self._without_container(case, (_PLUGINS,))
        return self._without_container(case, self._unlisted(case, Need("calls", "push", "the call push of a plugin")))

    def _other(self, case: Case) -> Verdict:
        other = case.call.other
        if not case.is_strict:
            return allow(_NOTHING)
        if other.prepared:
            return self._start_prepared(case)
        if other.unknown:
            return self._without_container(case, [_UNKNOWN_CALL])
        wanted = [strict_calls.call_need(other.name)] if other.name else [*strict_calls.pull_needs(other.pulls)]
        names = other.containers
        if other.name == "import":
            wanted += strict_calls.import_needs(case.call.query.get("fromSrc", ()))
        elif other.name == "checkpoints":
            folder = go_json.text(case.document(), "checkpointdir") if case.body else ""
            wanted += strict_calls.checkpoint_needs({**case.call.query, "checkpoint-dir": [folder]})
        if other.makes_network:
            wanted += networks.network_needs(case.document())
        elif other.connects:
            document = case.document()
            names = (go_json.text(document, "container"),)
            wanted += networks.endpoint_needs(endpoint_options([go_json.child(document, "endpointconfig")]))
        found = [self._find(case, name) for name in names]
        for subject in [each for each in found if each is not None] or [self._subjects.without_container(case.caller)]:
            access = _access(case, subject) if subject.container.known else iter(())
            asked = case.call.query.get("ps_args", ()) if other.lists_processes else ()
            verdict = _verdict(subject, chain(access, strict_calls.odd_listing(asked), unlisted(subject, iter(wanted))))
            if not verdict.allow:
                return verdict
        return allow(_NOTHING)

    def _unlisted(self, case: Case, *wanted: Need) -> Iterator[Refusal]:
        return unlisted(self._subjects.without_container(case.caller), iter(wanted))

    def _without_container(self, case: Case, refusals: Iterable[Refusal]) -> Verdict:
        return _verdict(self._subjects.without_container(case.caller), refusals)


def _access(case: Case, subject: Subject) -> Iterator[Refusal]:
    """Refuse, where rules are strict, to reach into a container that the caller could not make."""
    return find_refusals(subject, ACCESS) if case.is_strict else iter(())


def _verdict(subject: Subject, refusals: Iterable[Refusal]) -> Verdict:
    refusal = subject.first_refusal(refusals)
    return allow(_NOTHING) if refusal is None else refusal.verdict()
