"""What the world does: state, reward, end of episode, reset."""
