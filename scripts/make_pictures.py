"""Makes the pictures of docs/images/ anew: `python scripts/make_pictures.py learning.png`.

Without a name it prints the commands. Some train for hours.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "images"
ACROBOT = "train qr-dqn --env Acrobot-v1 --seeds 0-9 --log-dir runs/acrobot"
# Picture -> command lines of kytolly, one after the other; OUT is where the picture lies.
PICTURES = {
    "learning.png": ["benchmark learning --figure OUT"],
    "ppo_learning.png": ["benchmark ppo-learning --figure OUT"],
    "acrobot.png": [
        f"{ACROBOT}-1 --updates-per-interval 64",
        f"{ACROBOT}-4 --updates-per-interval 256",
        "plot runs/acrobot-1 runs/acrobot-4 --group --out OUT",
    ],
    "pong.png": [
        "train ppo --env ALE/Pong-v5 --tuned --seed 0 --log-dir runs/pong",
        "plot runs/pong --metric episode_return --out OUT",
    ],
}


def command_lines(picture: str) -> list[list[str]]:
    """The words of each command that makes a picture."""
    lines = [line.split() for line in PICTURES[picture]]
    return [[str(FOLDER / picture) if word == "OUT" else word for word in line] for line in lines]


def main() -> None:
    """Make the pictures that are named, or print how each is made."""
    for picture in sys.argv[1:] or PICTURES:
        for line in command_lines(picture):
            print("kytolly", *line, flush=True)
            if sys.argv[1:]:
                subprocess.run([sys.executable, "-m", "kytolly", *line], check=True)


if __name__ == "__main__":
    main()
