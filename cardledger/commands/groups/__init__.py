"""Commands with subcommands."""
