"""The version of this project, which every run's config.yaml names."""

__version__ = "0.3.0"
