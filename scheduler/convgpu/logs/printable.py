"""Text of others for logs and terminals: names of programs and images are theirs to choose. Pure."""


def printable(text: str) -> str:
    """Return a text with escapes in place of what would break a line, move the cursor or turn the reading direction."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
