"""The world: state, reward, end of episode, reset."""
