"""The words of the stand-in catalogue: invented brands and designs, and sentences that state what an outfit is."""

from __future__ import annotations

SEASONS = ("Spring", "Summer", "Autumn", "Winter")
OCCASIONS = ("Wedding", "Office", "Party", "Weekend", "Beach", "Dinner")
STYLES = ("Romantic", "Minimalist", "Bohemian", "Classic", "Edgy")
TIERS = ("Everyday", "Contemporary", "Luxury")

COLOURS = {
    "Green": ("Forest Green", "Sage", "Olive"),
    "Blue": ("Navy", "Sky Blue", "Cobalt"),
    "Red": ("Burgundy", "Coral", "Scarlet"),
    "Neutral": ("Ivory", "Camel", "Charcoal"),
    "Pink": ("Dusty Rose", "Blush", "Fuchsia"),
}
BRANDS = {
    "Everyday": ("Tindra Lane", "Brisk & Birch", "Plainfold", "Hverdagsloft"),
    "Contemporary": ("Atelier Sundvik", "Moss Verity", "Kvistgard", "Oda Linneby"),
    "Luxury": ("Maison Veldrane", "Casa Olmetti", "Stjernelunde", "Aurelle Vossberg"),
}
PRICES = {"Everyday": (600, 1400), "Contemporary": (1500, 3200), "Luxury": (3500, 9000)}
GARMENTS = {
    "Wedding": ("Wrap Dress", "Maxi Dress", "Lace Dress", "Silk Suit"),
    "Office": ("Blazer", "Pencil Skirt", "Shirt Dress", "Tailored Trousers"),
    "Party": ("Sequin Dress", "Jumpsuit", "Slip Dress", "Satin Top"),
    "Weekend": ("Knit Sweater", "Denim Jacket", "Midi Skirt", "Parka"),
    "Beach": ("Kaftan", "Sun Dress", "Wide Trousers", "Playsuit"),
    "Dinner": ("Velvet Dress", "Pleated Skirt", "Cape Blouse", "Tuxedo Jacket"),
}
DESIGNS = (
    "Juniper", "Willow", "Aster", "Marlow", "Linnea", "Sorrel", "Ondine", "Tamsin", "Elowen", "Freya", "Hazel", "Iris",
    "Clover", "Saffron", "Odette", "Perrin", "Rowan", "Solveig", "Thea", "Una", "Vesper", "Wren", "Yarrow", "Zinnia",
    "Briar", "Calla", "Dahlia", "Esme", "Fern", "Greta", "Heather", "Ingrid", "Jonquil", "Kaia", "Lark", "Maren",
)  # fmt: skip
SIZES = ("XS", "S", "M", "L", "XL")

FABRICS = {
    "Spring": ("light cotton", "fine viscose", "soft poplin"),
    "Summer": ("airy linen", "cool cotton voile", "thin crepe"),
    "Autumn": ("brushed twill", "soft corduroy", "merino jersey"),
    "Winter": ("warm wool", "thick velvet", "lined cashmere"),
}
OCCASION_PHRASES = {
    "Wedding": ("a wedding", "wedding guests", "the church and the wedding feast"),
    "Office": ("the office", "long office days", "meetings and office work"),
    "Party": ("a party", "a night of dancing at a party", "birthday and party nights"),
    "Weekend": ("the weekend", "slow weekend walks", "a weekend away"),
    "Beach": ("the beach", "beach days by the sea", "the beach and the boat"),
    "Dinner": ("a dinner out", "a formal dinner", "dinner by candlelight"),
}
SEASON_PHRASES = {
    "Spring": ("in spring", "on fresh spring days"),
    "Summer": ("in summer", "on hot summer days"),
    "Autumn": ("in autumn", "on crisp autumn days"),
    "Winter": ("in winter", "on cold winter days"),
}
STYLE_PHRASES = {
    "Romantic": ("romantic", "soft and romantic"),
    "Minimalist": ("minimalist", "clean, minimalist"),
    "Bohemian": ("bohemian", "loose, bohemian"),
    "Classic": ("classic", "timeless, classic"),
    "Edgy": ("edgy", "sharp, edgy"),
}
TIER_PHRASES = {
    "Everyday": ("an everyday piece", "everyday value"),
    "Contemporary": ("a contemporary label", "contemporary design"),
    "Luxury": ("pure luxury", "a luxury piece"),
}
SENTENCES = (
    "{Style} {garment} in {colour}, made of {fabric} for {occasion} {season}. {Tier} from {brand}.",
    "For {occasion} {season}: a {style} {garment} in {colour} and {fabric}. {brand}, {tier}.",
    "{brand} makes this {style} {garment} from {fabric}. {Colour}, for {occasion} {season}; {tier}.",
    "Wear this {colour} {garment} to {occasion} {season}. {Style} cut in {fabric}, {tier} by {brand}.",
)

# A few descriptions are Norwegian, as in the real set; they say the same.
NORWEGIAN = "{Style} {garment} i {colour}, laget for {occasion} om {season}. {Tier} fra {brand}."
NORWEGIAN_WORDS = {
    "Spring": "våren", "Summer": "sommeren", "Autumn": "høsten", "Winter": "vinteren", "Wedding": "bryllup",
    "Office": "kontoret", "Party": "fest", "Weekend": "helgen", "Beach": "stranden", "Dinner": "middag",
    "Romantic": "romantisk", "Minimalist": "minimalistisk", "Bohemian": "boheminspirert", "Classic": "klassisk",
    "Edgy": "tøff", "Everyday": "hverdagsplagg", "Contemporary": "moderne design", "Luxury": "luksus",
    "Green": "grønt", "Blue": "blått", "Red": "rødt", "Neutral": "nøytrale farger", "Pink": "rosa",
}  # fmt: skip
