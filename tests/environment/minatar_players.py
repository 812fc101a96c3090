"""Players of MinAtar's games that see enough of them; each is random every tenth time."""

import numpy as np

NOTHING, LEFT, UP, RIGHT, DOWN, FIRE = range(6)


def places(plane):
    """Rows and columns [N, 2] of what a plane shows."""
    return np.argwhere(plane)


def towards(target, x):
    return LEFT if target < x else RIGHT if target > x else NOTHING


def breakout(rng, obs):
    """Goes to where the ball comes down, one column aside now and then."""
    (_, paddle), (y, x), (last_y, last_x) = (places(obs[:, :, c])[0] for c in (0, 1, 2))
    if y > last_y:
        x = abs(x + (x - last_x) * (8 - y))
        x = 18 - x if x > 9 else x
    return towards(x, paddle)


def freeway(rng, obs):
    return UP


def asterix(rng, obs):
    """Leaves a lane in which an enemy comes near, else goes to gold."""
    y, x = places(obs[:, :, 0])[0]

    def danger(row):
        near = places(obs[row, :, 1])[:, 0]
        return 1 <= row <= 8 and bool(np.any(np.abs(near - x) <= 2))

    if danger(y):
        ways = [(UP, y - 1), (DOWN, y + 1)]
        safe = [action for action, row in ways if 1 <= row <= 8 and not danger(row)]
        return int(rng.choice(safe)) if safe else int(rng.choice([LEFT, RIGHT]))
    for row, _ in places(obs[:, :, 3]):
        step = y + np.sign(row - y)
        if row != y and not danger(step):
            return UP if row < y else DOWN
    gold = places(obs[y, :, 3])
    return towards(gold[0, 0], x) if len(gold) else NOTHING


def space_invaders(rng, obs):
    """Avoids bullets, and shoots from below the nearest column of aliens."""
    x = places(obs[:, :, 0])[0, 1]
    bullets = obs[5:, :, 5].any(axis=0)
    if bullets[x]:
        ways = [(LEFT, x - 1), (RIGHT, x + 1)]
        safe = [action for action, column in ways if 0 <= column <= 9 and not bullets[column]]
        return safe[0] if safe else FIRE
    columns = np.flatnonzero(obs[:, :, 1].any(axis=0))
    target = columns[np.argmin(np.abs(columns - x))]
    return FIRE if target == x else towards(target, x)


def seaquest(rng, obs):
    """Fetches divers, comes up with one when oxygen is short or six are on board; shoots."""
    y, x = places(obs[:, :, 0])[0]
    oxygen, crew = obs[9, :, 7].sum(), obs[9, :, 8].sum()
    enemies = obs[:, :, 5] | obs[:, :, 6] | obs[:, :, 4]
    if crew and (oxygen < 4 or crew == 6):
        return UP
    if y and enemies[y].any() and rng.random() < 0.5:
        nearest = min(places(enemies[y])[:, 0], key=lambda column: abs(column - x))
        faces = LEFT if obs[y, :, 1].argmax() > x else RIGHT
        return FIRE if towards(nearest, x) in (faces, NOTHING) else towards(nearest, x)
    for row, column in places(obs[:, :, 9]):
        if row != y:
            step = y + np.sign(row - y)
            free = not enemies[step, max(0, x - 1) : x + 2].any()
            return (UP if row < y else DOWN) if free else FIRE
        return towards(column, x)
    return DOWN if y < 4 else int(rng.integers(6))


def player(choose):
    """The player with every tenth action random."""

    def act(rng, obs):
        return int(rng.integers(6)) if rng.random() < 0.1 else int(choose(rng, obs))

    return act


PLAYERS = {
    "Asterix": player(asterix),
    "Breakout": player(breakout),
    "Freeway": player(freeway),
    "Seaquest": player(seaquest),
    "SpaceInvaders": player(space_invaders),
}
