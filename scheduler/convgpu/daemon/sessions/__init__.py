"""Sessions of processes.

- `session`: one process. `registry`: all of them, and what they use.
- `lifecycle`: what processes do, as events. `effects`: what the machine decides, carried out.
- `disconnected`: lost connections. `recovery`: processes of an earlier scheduler.
"""
