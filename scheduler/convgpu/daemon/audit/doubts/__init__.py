"""What is in doubt about who has memory, and who can tell."""
