"""Commands that serve HTTP: the dashboard and the metrics."""
