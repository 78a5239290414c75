"""The commands about files of the network."""
