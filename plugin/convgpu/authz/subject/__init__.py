"""What one judgement is about: read once, before any check."""
