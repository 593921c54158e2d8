"""``state.db``: the schema, the one thread that writes it, and what is put right after an owner died.

Readers use ``fanjoin.client.records``; nothing but SQLite ever opens the file.
"""
