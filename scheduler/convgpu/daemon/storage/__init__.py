"""The database, `state.db`: what outlives a scheduler. From the top down, each module uses only those below it.

- `store`: one object for all tables of one scheduler; `history`, with `counters`: events.
- `volumes`, `sessions`, `devices`, `settings`: one module for each group of tables; `rows`: what they return.
- `transactions`: what is committed at once, what is committed soon, reading, and syncing to the disk.
- `write_queue`: rows that wait to be committed; `database`: the file, its schema, and what is saved of a damaged one.
"""
