"""Gymnasium environments on the host."""

import os

# A window that pygame draws by OpenGL, as it does where there is no display, ends the process:
# Mesa's LLVM meets the one that TensorFlow exports. Anybody may ask for a window: a function that
# makes the environment, a stranger's config.yaml.
os.environ.setdefault("SDL_FRAMEBUFFER_ACCELERATION", "0")
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # it greets on standard output
