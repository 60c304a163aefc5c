"""HTTP administration, metrics and the page."""
