"""What the strict rules of a site say of a container that starts, and what they change of it."""
