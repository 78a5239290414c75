"""What profiles of settlement files and of bank statements have in common: a file of TOML."""
