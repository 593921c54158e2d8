"""The command line: reads what was asked, shows what happened, and says by its exit code how it ended."""
