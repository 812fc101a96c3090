"""The makers of the data and networks that come with the package. Not installed."""
