"""Residency: where the memory of elastic containers lies, and the events and effects that move it; pure.

Who has the turn to be on a card is decided in `core/turns`.
"""
