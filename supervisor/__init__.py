"""The supervisor: starts every agent as a process, joins every result, records each in SQLite, leaves nothing behind."""
