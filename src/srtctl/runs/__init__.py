"""Run directories: made, recorded, found, read, followed, and their status derived."""
