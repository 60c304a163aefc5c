"""Ends of processes that the audit orders.

- `terminate`: ends them, and takes from their containers what delays that.
- `survivors`: who is still there, and what is known of why.
"""
