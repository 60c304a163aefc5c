"""Commands about clusters of many hosts."""
