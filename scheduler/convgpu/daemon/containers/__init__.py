"""Volumes and their containers: created, mounted, listed, ended, removed."""
