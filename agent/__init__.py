"""Everything that happens between two batches: memory, exploration, counters."""
