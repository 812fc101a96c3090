"""Several trainings: seeds, the search of settings, and comparing runs."""
