"""The version, as a constant: asking the installed metadata costs 20 ms of imports."""

VERSION = "0.1.0"
