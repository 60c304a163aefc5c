"""Which labels of a container are shown."""

from convgpu.protocol.labels import USER, shown_labels


def test_labels_of_people_are_shown_and_those_of_tools_are_not() -> None:
    given = {
        "team": "vision",
        USER: "ana",
        "com.docker.compose.project": "lab",
        "com.docker.compose.config-hash": "0123",
        "org.opencontainers.image.licenses": "MIT",
    }
    assert shown_labels(given) == {USER: "ana", "com.docker.compose.project": "lab", "team": "vision"}


def test_they_are_few_and_short_and_the_user_is_among_them() -> None:
    given = {f"a{number:03}": "x" * 1000 for number in range(1000)} | {USER: "ana", "k" * 500: "v"}
    shown = shown_labels(given)
    assert (len(shown), shown[USER], len(shown["a000"])) == (16, "ana", 128)
