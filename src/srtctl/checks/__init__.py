"""Post-launch checks: does the running deployment do what the plan says?

The package is copied into every bundle and runs inside the job, in whatever Python the stack's container has:
only the standard library, syntax of Python 3.9. `python3 -m srtctl.checks --help` is its interface; the result
is `checks.json` (docs/architecture.md).
"""
