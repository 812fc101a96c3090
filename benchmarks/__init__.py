"""Throughput tables and learning curves, measured side by side."""
