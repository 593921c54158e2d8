"""The tools that work on the user's machine: ``files`` reads and writes, ``terminal`` runs commands."""
