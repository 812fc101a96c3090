"""Convolutions for observations that are images or grids, and where their channels are."""

from __future__ import annotations

import warnings

from kytolly.model.nature_cnn import GridCNN, NatureCNN, SmallCNN

MAX_CHANNELS = 16  # of an image, or images of a stack, that comes with them first
PIXELS = 32  # a side of what can only be an image
GRID_DTYPES = ("bool", "int8")  # uint8 is what images have
FIELDS = 20  # a side of fewer is of a grid of codes, as in MiniGrid: too small for a picture
# Of what passes images. Saved models may have True and "small", which shorten no small side.
KINDS = {"grid_cnn": "grid", "uint8_grid": "normed_grid", "small_cnn": "small_halving"}


def image_layout(cfg, network, entries):
    """The way of entries with three axes and more through convolutions.

    Args:
        cfg: Configuration, which has the settings of `impala`.
        network: auto, cnn, small_cnn, grid_cnn or impala.
        entries: Shape and dtype of each entry of an observation, by name.

    Returns:
        What `image_torso` takes, or False for none; and the names of the entries whose
        channels, or stacked images, come first.

    Raises:
        ValueError: `auto` has a uint8 image of which nobody can tell where its channels are.
    """
    kinds = {name: layout(tuple(spec.shape)) for name, spec in entries.items()}
    guesses = network == "auto"
    if guesses:
        found = [(spec.dtype, len(spec.shape), kinds[name]) for name, spec in entries.items()]
        if any(dtype == "uint8" and (axes == 3 or kind) for dtype, axes, kind in found):
            pictures = [is_picture(spec, kinds[name]) for name, spec in entries.items()]
            network = "cnn" if any(pictures) else "uint8_grid"
        elif any(dtype in GRID_DTYPES and axes == 3 and kind for dtype, axes, kind in found):
            network = "grid_cnn"
        else:
            return False, ()
    first = tuple(name for name, kind in kinds.items() if kind in ("first", "stack"))
    for name, spec in entries.items():
        shape, what = tuple(spec.shape), f"the observation{f' {name!r}' if name else ''}"
        if name in first:
            size = tuple(shape[1:3])
            warnings.warn(
                f"{what} of shape {shape} is read as {shape[0]} "
                f"{'channels' if len(shape) == 3 else 'images'} of {size[0]} x {size[1]}: the "
                "network moves its first axis to the end. Give it as it is.",
                stacklevel=2,
            )
        elif guesses and spec.dtype == "uint8" and len(shape) == 3 and kinds[name] is None:
            raise ValueError(unclear(what, shape))
    if network == "impala":
        pool, spectral = cfg.impala_pool_size, cfg.spectral_norm
        return {"width": cfg.impala_width, "pool_size": pool, "spectral_norm": spectral}, first
    return KINDS.get(network, "halving"), first


def is_picture(spec, kind):
    """True for uint8 with more than a few pixels a side; `kind` is what `layout` says of it."""
    size = spec.shape[1:] if kind == "first" else spec.shape[:2]
    is_large = kind == "stack" or (len(spec.shape) == 3 and max(size) >= FIELDS)
    return spec.dtype == "uint8" and is_large


def layout(shape):
    """Place of the channels of an image: first, last, in a stack of images, or None: unclear."""
    if len(shape) == 4:
        count, *size, channels = shape
        is_stack = count <= MAX_CHANNELS and min(size) >= PIXELS and channels in (1, 3, 4)
        return "stack" if is_stack else None
    if len(shape) != 3:
        return None
    first, middle, last = shape
    if (last < middle and last <= first) or (first == middle and last < max(PIXELS, middle + 1)):
        return "last"
    square = middle == last and 2 * first <= middle
    if first <= MAX_CHANNELS and (square or min(middle, last) >= PIXELS):
        return "first"
    return None


def unclear(what, shape):
    """The message for an image of which nobody can tell where its channels are."""
    end = (shape[1], shape[2], shape[0])
    return (
        f"{what} of shape {shape} is uint8, expected an image of (height, width, channels), or of "
        "(channels, height, width) with few channels: it is unclear where these are. If they are "
        "last, set network='cnn', or 'grid_cnn' for a few fields; if it is no image, "
        "network='mlp'; if they are first, wrap the environment: "
        "gymnasium.wrappers.TransformObservation(env, lambda obs: "
        f"numpy.moveaxis(obs, 0, -1), gymnasium.spaces.Box(0, 255, {end}, numpy.uint8))."
    )


def image_torso(kind, channels_first: bool = False, layer_norm: bool = False):
    """The layer for images of a kind that `image_layout` names."""
    if isinstance(kind, dict):
        from kytolly.model.impala import ImpalaCNN

        return ImpalaCNN(channels_first, **kind)
    if kind in ("grid", "normed_grid"):  # norms, as nobody knows how large the numbers are
        return GridCNN(channels_first, layer_norm or kind == "normed_grid")
    torso = SmallCNN if kind in ("small", "small_halving") else NatureCNN
    return torso(channels_first, layer_norm, halves=kind in ("halving", "small_halving"))
