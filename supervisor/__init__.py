"""The supervisor: every agent is a process, every result is joined and recorded, nothing is left behind."""
