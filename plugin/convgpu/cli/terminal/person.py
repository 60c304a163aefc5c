"""Who runs a command."""

import os


def person() -> str:
    """Return who runs this command: who called sudo, or else the user of this process."""
    import pwd  # noqa: PLC0415 - the ways to the Engine and the plugin need none

    try:
        name = os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = f"uid {os.getuid()}"
    return "".join(character for character in name if character.isprintable())[:64]
