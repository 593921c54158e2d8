"""Errors that more than one package raises, by whose fault they are.

    FanjoinError
    ├── UserError            the command line, the configuration or the environment is wrong (exit 2)
    │   └── ConfigError      a key of config.yaml, with its file and line
    ├── RunError             the run could not be carried out (exit 1)
    │   ├── StorageError     state.db cannot record or be read
    │   └── OwnerLostError   the supervisor is gone or does not answer
    └── ProtocolError        a peer sent something that the protocol does not know
        └── BadFrameError    bytes that are no message, or too large

A message says what happened, what it means and what to do next.
"""


class FanjoinError(Exception):
    """Base of every error that this project raises on purpose; ``reason`` is its word in machine formats."""

    exit_code = 1
    reason = "failed"


class UserError(FanjoinError):
    """The caller asked for something that cannot be done as asked."""

    exit_code = 2
    reason = "usage"


class ConfigError(UserError):
    """A configuration file or value is wrong; the message names file, line and key."""


class RunError(FanjoinError):
    """The run started and could not be carried out."""


class StorageError(RunError):
    """The database cannot be opened, read or written."""

    reason = "storage_unavailable"


class OwnerLostError(RunError):
    """The supervisor that owns the run died or stopped answering."""

    reason = "owner_lost"


class ProtocolError(FanjoinError):
    """A peer broke the protocol."""


class BadFrameError(ProtocolError):
    """A frame is not a message of this protocol, or is larger than allowed."""
