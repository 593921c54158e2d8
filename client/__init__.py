"""The viewer's side as a library: find or start a supervisor, submit a turn, follow it to its joined end."""
