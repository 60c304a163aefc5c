"""The decision about a call."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision.

    Attributes:
        allow: whether the call may pass.
        rule: name of the rule that decided.
        message: for the user; empty when the call may pass.
        detail: for the log alone.
    """

    allow: bool
    rule: str
    message: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason against a call: the rule's name and what to change, in one or two lines.

    Attributes:
        has_entry: the text names the entry of the site's strict list that would permit it, or what to say instead.
        detail: for the log alone: what a user may not be told, such as where links of root's folders lead.
    """

    rule: str
    text: str
    has_entry: bool = False
    detail: str = ""

    def verdict(self) -> Verdict:
        """Return the denial, whose message begins with the rule's name."""
        return Verdict(allow=False, rule=self.rule, message=f"{self.rule}: {self.text}", detail=self.detail)


class Denied(Exception):  # noqa: N818 - a decision, not an accident
    """A call is refused and no exemption of the site can change it."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal


def allow(rule: str) -> Verdict:
    """Return the permission that a rule gives."""
    return Verdict(allow=True, rule=rule)


NOT_JUDGED: Final = allow("not-judged")
