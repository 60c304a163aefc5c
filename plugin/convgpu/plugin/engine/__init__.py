"""The Docker Engine, as the plugin asks it."""
