"""gunicorn and Flask on the plugin's socket."""
