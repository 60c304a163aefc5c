"""Commands that show containers, devices and events."""
