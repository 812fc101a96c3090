"""The commands of search and texts: one file a command."""
