"""One module a resource: parse, call, render."""
