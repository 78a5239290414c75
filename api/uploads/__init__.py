"""Forms with a file (`multipart/form-data`): received in parts, limited, and checked."""
