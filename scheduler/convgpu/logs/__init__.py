"""How log lines look, and which cause they carry; for scheduler and plugin alike."""
