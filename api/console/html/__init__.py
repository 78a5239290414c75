"""How pages are written: templates, values, pictures, static files."""
