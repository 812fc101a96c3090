"""Learning rules: targets, losses, gradients, target networks."""
