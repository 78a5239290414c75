"""Settlement files of networks, read one row at a time: the canonical form and profiles for others.

Source: docs/network-files.md
"""
