"""Turns: which containers may be on their cards, whose memory leaves for them, and every step of a move; pure."""
