"""The files of a run: its folder, checkpoints, metrics file and plots."""
