"""Behind whom a container waits for its turn: those whose memory cannot leave, the largest first."""

from one_card import Card

from convgpu.core import events as e
from convgpu.core.residency import events as r


def behind(card: Card) -> dict[str, tuple[str, ...]]:
    """Return by container what its view says, once it is the same as what is said of its allocation."""
    requests = {waiting.container: waiting.request for waiting in card.machine.waiting}
    said = {name: card.machine.explain(card.now)[request].behind for name, request in requests.items()}
    views = {name: card.machine.residence(name) for name in requests}
    assert said == {name: view.behind for name, view in views.items() if view is not None}
    assert said == {
        name: wait.behind
        for name, request in requests.items()
        if (wait := card.machine.explain_one(name, request, card.now)) is not None
    }
    return said


def test_as_many_as_have_to_end_are_named_and_each_event_names_them_anew() -> None:
    card = Card(switch_cost=0.0)
    sessions = {}
    for name, size in (("a", 6), ("b", 4), ("w", 7)):
        sessions[name] = card.start(name, size)
        card.allocate(sessions[name], size)
    assert behind(card) == {"w": ("a", "b")}
    card.send(e.SessionEnded(sessions["b"], {}))
    assert behind(card) == {"w": ("a",)}
    card.send(r.Idle("a", -100.0))  # its memory may leave: nobody waits for its end
    assert behind(card) == {"w": ()}
