"""Reading user files: YAML that knows its positions, and models whose errors point into the file."""
