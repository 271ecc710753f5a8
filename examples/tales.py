"""Short tales by a small grammar, the training texts of ``train_text.py``.

Usage: python examples/tales.py COUNT SEED

Prints COUNT texts for ``celosia evaluate``; the seed of the training texts is 1.
"""

import argparse
import random

ADJECTIVES = ("small", "red", "quick", "quiet", "brave", "green", "tall", "blue")
ANIMALS = ("fox", "owl", "bear", "cat", "hare", "mole", "crow", "frog")
THINGS = ("key", "bell", "cup", "map", "shell", "lamp", "drum", "rope")
PLACES = ("river", "hill", "wood", "lake", "road", "barn", "field", "well")
MOODS = ("glad", "sad", "calm", "proud")


def tale(source: random.Random) -> str:
    """Return a tale of four sentences with the same animals, thing and place in all of them."""
    hero, friend = source.sample(ANIMALS, 2)
    kind, look = source.sample(ADJECTIVES, 2)
    thing, place, mood = (source.choice(words) for words in (THINGS, PLACES, MOODS))
    first = source.choice(
        (
            f"the {kind} {hero} found a {look} {thing} near the {place}.",
            f"one day a {kind} {hero} lost a {look} {thing} by the {place}.",
            f"a {kind} {hero} had a {look} {thing} and lived near the {place}.",
        )
    )
    second = source.choice(
        (
            f"the {hero} showed the {thing} to the {friend}.",
            f"then the {hero} met a {friend} at the {place}.",
            f"the {friend} came to the {place} and saw the {hero}.",
        )
    )
    third = source.choice(
        (
            f"the {friend} said, what a {look} {thing}.",
            f"the {friend} said, I like the {thing}.",
            f"the {hero} said, this {thing} is for you.",
        )
    )
    fourth = source.choice(
        (
            f"so the {friend} and the {hero} were {mood}.",
            f"the {hero} was {mood}, and the {friend} was {mood} too.",
            f"they took the {thing} home and were {mood}.",
        )
    )
    return " ".join((first, second, third, fourth)).lower() + "\n"


def tales(count: int, seed: int) -> str:
    """Return ``count`` tales, one a line, the same for the same seed."""
    source = random.Random(seed)
    return "".join(tale(source) for _ in range(count))


def main() -> None:
    """Print tales as texts with separators."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("count", type=int)
    parser.add_argument("seed", type=int)
    arguments = parser.parse_args()
    print("\n<|endoftext|>\n".join(tales(arguments.count, arguments.seed).splitlines()))


if __name__ == "__main__":
    main()
