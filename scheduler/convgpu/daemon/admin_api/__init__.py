"""Answers on the administration socket, and settings that change while the scheduler runs."""
