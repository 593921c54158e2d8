"""Hold the write lock of a database until standard input ends. Arguments: the database."""

import sqlite3
import sys

connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)  # noqa: T201
sys.stdin.read()
connection.execute("ROLLBACK")
connection.close()
