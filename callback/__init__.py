"""What only watches: logging, saving, stopping, evaluating."""
