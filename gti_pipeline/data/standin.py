"""Generates the Vibrent stand-in: files in the real set's exact schema, with invented content and learnable taste.

Every outfit has a season, an occasion, a style, a colour and a brand tier, and its text says so. Every customer
prefers some of each, slowly changes their mind, and tends to stay with one occasion and season for a few rentals. So
the next outfit can be told, in part, from the texts of the last ones; the rest is popularity (Zipf) and chance.
"""

from __future__ import annotations

import hashlib
import logging
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path

from gti_pipeline.data import standin_words as words
from gti_pipeline.data.draws import Draws
from gti_pipeline.data.source import STANDINS

NUM_GROUPS, NUM_OUTFITS, NUM_CUSTOMERS = 170, 300, 400
FIRST_DAY, SWITCH_DAY, LAST_DAY = date(2016, 1, 4), date(2020, 7, 1), date(2023, 12, 20)
REPEAT_RATE, REPEAT_AFTER_DAYS = 0.11, 35
STAY, DRIFT = 0.8, 0.06  # chance that the next rental keeps occasion and season; that a preference changes
WEIGHTS = {"occasion": 3.5, "season": 3.0, "style": 2.0, "colour": 1.2, "tier": 1.5}
ZIPF = 0.6

OUTFIT_HEADER = (
    "id;name;description;group;owner;timeCreated;retailPrice;pricePerWeek;pricePerMonth;outfit_tags;tag_categories"
)
RENTAL_HEADER = "customer.id;outfit.id;rentalPeriod.start;rentalPeriod.end"
TAG_CATEGORIES = "['Category', 'Color', 'Occasion', 'Season', 'Style', 'Price']"
CHOICES: Mapping[str, Sequence[str]] = {
    "season": words.SEASONS,
    "occasion": words.OCCASIONS,
    "style": words.STYLES,
    "colour": tuple(words.COLOURS),
    "tier": words.TIERS,
}

Traits = dict[str, str]  # keys as in CHOICES


@dataclass(frozen=True)
class Outfit:
    """One physical garment of a design (`group`); `popularity` is the log of its Zipf weight."""

    id: str
    group: str
    name: str
    garment: str
    shade: str
    brand: str
    traits: Traits
    popularity: float = 0.0


@dataclass(frozen=True)
class Rental:
    """One row of the order files."""

    customer: str
    outfit: str
    start: date
    end: date

    def row(self) -> str:
        """The line of the file, without its end."""
        return f"{self.customer};{self.outfit};{self.start};{self.end}"


def generate(seed: int = 0) -> dict[str, str]:
    """The text of each file by name; the same seed gives the same bytes."""
    draw = Draws(seed)
    outfits = _outfits(draw)
    catalogue = [_outfit_row(draw, number, outfit) for number, outfit in enumerate(outfits)]
    rentals = _rentals(draw, outfits)
    originals = [rental.row() for rental in rentals if rental.start < SWITCH_DAY]
    newer = [rental.row() for rental in rentals if rental.start >= SWITCH_DAY]
    catalogue += _catalogue_hazards(catalogue)
    originals, newer = _rental_hazards(draw, rentals, originals, newer)
    return {
        "outfits.csv": _file(OUTFIT_HEADER, draw.shuffled(catalogue)),
        "original_orders.csv": _file(RENTAL_HEADER, draw.shuffled(originals)),
        "user_activity_triplets.csv": _file(RENTAL_HEADER, draw.shuffled(newer)),
    }


def write_standin(folder: Path, seed: int = 0) -> None:
    """Writes the generated files into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in generate(seed).items():
        (folder / name).write_text(text, encoding="utf-8", newline="")


def _file(header: str, rows: Sequence[str]) -> str:
    return "\n".join([header, *rows]) + "\n"


def _identifier(kind: str, text: str) -> str:
    return f"{kind}.{hashlib.sha256(f'{kind} {text}'.encode()).hexdigest()[:32]}"


# ---------------------------------------------------------------------------------------------------------- catalogue


def _outfits(draw: Draws) -> list[Outfit]:
    """Garments of `NUM_GROUPS` designs; a design's garments share all but their shade of the colour."""
    designs = [_design(draw, number) for number in range(NUM_GROUPS)]
    sizes = [1] * NUM_GROUPS
    while sum(sizes) < NUM_OUTFITS:
        group = draw.whole(0, NUM_GROUPS - 1)
        sizes[group] += sizes[group] < 4
    outfits: list[Outfit] = []
    for design, size in zip(designs, sizes, strict=True):
        shades = draw.shuffled(words.COLOURS[design.traits["colour"]])
        for shade in [*shades, draw.pick(shades)][:size]:
            outfits.append(replace(design, id=_identifier("outfit", str(len(outfits))), shade=shade))
    ranks = draw.shuffled(range(1, len(outfits) + 1))
    return [replace(outfit, popularity=-ZIPF * math.log(rank)) for outfit, rank in zip(outfits, ranks, strict=True)]


def _design(draw: Draws, number: int) -> Outfit:
    traits = {trait: draw.pick(options) for trait, options in CHOICES.items()}
    garment, brand = draw.pick(words.GARMENTS[traits["occasion"]]), draw.pick(words.BRANDS[traits["tier"]])
    name = f"{draw.pick(words.DESIGNS)} {garment}"
    return Outfit("", _identifier("group", str(number)), name, garment, "", brand, traits)


def _outfit_row(draw: Draws, number: int, outfit: Outfit) -> str:
    size = f"{draw.pick(words.SIZES)} " if number % 20 == 7 else ""
    text = _norwegian(outfit) if number % 50 == 11 else _description(draw, outfit)
    price = 10 * (draw.whole(*words.PRICES[outfit.traits["tier"]]) // 10)
    created = FIRST_DAY + timedelta(days=draw.whole(0, 900))
    traits = outfit.traits
    tags = [outfit.garment.split()[-1], *(traits[t] for t in ("colour", "occasion", "season", "style", "tier"))]
    name, owner = f"{size}{outfit.name} {outfit.shade}", f"owner.{outfit.brand.split()[0].lower()}"
    prices = [str(price), str(round(price * 0.12)), str(round(price * 0.25))]
    fields = [outfit.id, name, text, outfit.group, owner, f"{created} 09:30:00", *prices, str(tags), TAG_CATEGORIES]
    return ";".join(f'"{value}"' if ";" in value else value for value in fields)


def _description(draw: Draws, outfit: Outfit) -> str:
    traits = outfit.traits
    style, tier = draw.pick(words.STYLE_PHRASES[traits["style"]]), draw.pick(words.TIER_PHRASES[traits["tier"]])
    return draw.pick(words.SENTENCES).format(
        style=style,
        Style=_capital(style),
        tier=tier,
        Tier=_capital(tier),
        colour=outfit.shade.lower(),
        Colour=_capital(outfit.shade.lower()),
        garment=outfit.garment.lower(),
        brand=outfit.brand,
        fabric=draw.pick(words.FABRICS[traits["season"]]),
        occasion=draw.pick(words.OCCASION_PHRASES[traits["occasion"]]),
        season=draw.pick(words.SEASON_PHRASES[traits["season"]]),
    )


def _norwegian(outfit: Outfit) -> str:
    said = {trait: words.NORWEGIAN_WORDS[value] for trait, value in outfit.traits.items()}
    names = {"Style": _capital(said["style"]), "Tier": _capital(said["tier"]), "garment": outfit.garment.lower()}
    return words.NORWEGIAN.format(**said, **names, brand=outfit.brand)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


# ------------------------------------------------------------------------------------------------------------ rentals


def _rentals(draw: Draws, outfits: Sequence[Outfit]) -> list[Rental]:
    numbers = draw.shuffled(range(1, 6000))[:NUM_CUSTOMERS]
    return [rental for number in numbers for rental in _customer(draw, f"{number:05d}", outfits)]


def _customer(draw: Draws, customer: str, outfits: Sequence[Outfit]) -> list[Rental]:
    """One customer's rentals, oldest first."""
    taste = {trait: draw.pick(options) for trait, options in CHOICES.items()}
    mood = dict(taste)  # the occasion and season of the moment
    last_rented: dict[str, date] = {}
    rentals: list[Rental] = []
    day = FIRST_DAY + timedelta(days=draw.whole(0, 2100))
    for _ in range(_how_many(draw)):
        if not draw.chance(STAY):
            for trait in ("occasion", "season"):
                mood[trait] = taste[trait] if draw.chance(0.5) else draw.pick(CHOICES[trait])
        if draw.chance(DRIFT):
            trait = draw.pick(tuple(CHOICES))
            taste[trait] = draw.pick(CHOICES[trait])
        wish = taste | {"occasion": mood["occasion"], "season": mood["season"]}
        chosen = _choose(draw, outfits, wish, last_rented, day)
        last_rented[chosen] = day
        rentals.append(Rental(customer, chosen, day, day + timedelta(days=draw.whole(3, 28))))
        day += timedelta(days=draw.whole(8, 75))
        if day > LAST_DAY:
            break
    return rentals


def _how_many(draw: Draws) -> int:
    """1 or 2 rentals now and then, else 3 and more, about 7.5 on average."""
    if draw.chance(0.06):
        return draw.whole(1, 2)
    count = 3
    while draw.chance(0.835) and count < 30:
        count += 1
    return count


def _choose(draw: Draws, outfits: Sequence[Outfit], wish: Traits, last_rented: Mapping[str, date], day: date) -> str:
    """An old favourite after a while, else something new by taste and popularity."""
    favourites = [o for o, when in last_rented.items() if (day - when).days >= REPEAT_AFTER_DAYS]
    if favourites and draw.chance(REPEAT_RATE):
        return draw.pick(favourites)
    fresh = [outfit for outfit in outfits if outfit.id not in last_rented]
    return draw.weighted(fresh, [_appeal(outfit, wish) for outfit in fresh]).id


def _appeal(outfit: Outfit, wish: Traits) -> float:
    fit = sum(weight for trait, weight in WEIGHTS.items() if outfit.traits[trait] == wish[trait])
    return math.exp(fit + outfit.popularity)


# ------------------------------------------------------------------------------------------------------------ hazards


def _catalogue_hazards(catalogue: Sequence[str]) -> list[str]:
    """Two outfits without a name and one line torn off in the middle."""
    nameless = []
    for number in range(2):
        fields = catalogue[number * 40].split(";")
        nameless.append(";".join([_nameless(number), "", *fields[2:]]))
    return [*nameless, f"{_identifier('outfit', 'torn')};Torn Dress;The rest of this line is"]


def _nameless(number: int) -> str:
    return _identifier("outfit", f"nameless {number}")


def _rental_hazards(
    draw: Draws, rentals: Sequence[Rental], originals: Sequence[str], newer: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Adds rows that must be rejected; no true row is touched."""
    picked = [draw.pick(rentals) for _ in range(6)]
    soon = [replace(r, start=r.start + timedelta(days=4), end=r.end + timedelta(days=4)) for r in picked[:4]]
    inverted = [replace(r, start=r.end + timedelta(days=60), end=r.end + timedelta(days=55)) for r in picked[2:5]]
    unknown = [replace(picked[n], outfit=_identifier("outfit", f"gone {n}")) for n in range(2)]
    unknown.append(replace(picked[5], outfit=_nameless(0)))
    extra = [*soon, *inverted, *unknown]
    old = [*originals, *(r.row() for r in extra if r.start < SWITCH_DAY), originals[0]]
    new = [*newer, *(r.row() for r in extra if r.start >= SWITCH_DAY), newer[0], newer[1], f"{picked[0].customer};2021"]
    return old, new


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    write_standin(STANDINS / "vibrent")
    logging.getLogger(__name__).info("wrote %s", STANDINS / "vibrent")
