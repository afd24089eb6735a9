"""srtctl: declarative LLM serving on Slurm, from one recipe to a proven deployment."""

__version__ = "0.1.0"
