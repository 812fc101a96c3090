"""Tables of search and texts, measured side by side."""
