"""Small files in the exact layouts of the published data sets, each with its own few faults.

All hold one invented world: 12 items and 12 users, user u takes items u, u+1, ... u+5 (mod 12) in that order, so every
user and every item has six events. Item 12 has one event only, item 13 none.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

USERS = ITEMS = 12
EVENTS_A_USER = 6
RARE, UNUSED = 12, 13
TITLES = [
    "Amélie’s Café Table",  # the quote is a byte of Windows-1252 that Latin-1 does not have
    "Pens, Blue & Black",
    "Desk Lamp",
    "Stapler No. 5",
    "Glue Stick",
    "Paper Clips",
    "Ruler",
    "Notebook A5",
    "Envelopes",
    "Whiteboard",
    "Marker",
    "Label Maker",
    "Rare Globe",
    "Unused Abacus",
]
DAY = 86_400
CORE_ITEMS = {"left out by k_core": 2}  # items 12 and 13
CORE_EVENT = {"left out by k_core": 1}  # the event of item 12
START = 1_300_000_000  # seconds; any day


@dataclass(frozen=True)
class Layout:
    """What was written, and what must come of it.

    `users`, `items`: the ids that stand for user u and item i. `texts`: title and description of some items.
    `counts`: per file (rows read, rejected by reason, left out by reason).
    `catalogue`: the ids of all items that remain.
    """

    users: list[str]
    items: list[str]
    texts: dict[str, tuple[str, str]]
    counts: dict[str, tuple[int, dict[str, int], dict[str, int]]]
    catalogue: set[str] = field(default_factory=set)
    extra: dict[str, list[str]] = field(default_factory=dict)  # users whose events are not those of the world

    def sequences(self) -> dict[str, list[str]]:
        """The items of each user, oldest first."""
        world = {self.users[u]: [self.items[(u + step) % ITEMS] for step in range(EVENTS_A_USER)] for u in range(USERS)}
        return world | self.extra


def events(rare: bool = True) -> list[tuple[int, int, int]]:
    """(user, item, step) of every event, newest first, as a file need not be sorted."""
    world = [(u, (u + step) % ITEMS, step) for step in range(EVENTS_A_USER) for u in range(USERS)]
    return [*([(0, RARE, EVENTS_A_USER)] if rare else []), *world[::-1]]


def second(step: int) -> int:
    """Epoch seconds of a user's event."""
    return START + step * DAY


def json_lines(path: Path, rows: list) -> None:
    """Objects as JSON, text as it stands; gzipped where the name says so."""
    text = "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def asin(i: int) -> str:
    return f"B{i:09d}"


def reviewer(u: int) -> str:
    return f"A{u:013d}"


def _old_reviews() -> list[dict]:
    return [
        {
            "reviewerID": reviewer(u),
            "asin": asin(i),
            "reviewerName": 'Ann "A" Other',
            "helpful": [0, 0],
            "reviewText": "Good, really.\nTwo lines.",
            "overall": 5.0,
            "summary": "Good",
            "unixReviewTime": second(step),
            "reviewTime": "03 13, 2011",
        }
        for u, i, step in events()
    ]


def amazon_2014(folder: Path) -> Layout:
    """Reviews are JSON lines, metadata lines are Python literals."""
    items = [
        {
            "asin": asin(i),
            "related": {"also_viewed": [asin(1)]},
            "title": title.replace("&", "&amp;"),
            "price": 5.35,
            "salesRank": {"Office Products": i},
            "imUrl": "http://example.com/i.jpg",
            "brand": "It's 3M" if i == 1 else "",
            "categories": [["Office Products", "Supplies"]],
            "description": f'The "{title}", 5" wide.',
        }
        for i, title in enumerate(TITLES)
    ]
    del items[2]["description"], items[2]["brand"]
    untitled = {"asin": asin(90), "description": "no title"}
    json_lines(folder / "meta_Office_Products.json.gz", [*map(repr, items), repr(untitled), "{'asin': 'B1', 'title': "])
    reviews = _old_reviews()
    unknown = {**reviews[0], "asin": asin(90)}
    json_lines(folder / "reviews_Office_Products_5.json.gz", [*reviews, reviews[5], unknown])
    return Layout(
        users=[reviewer(u) for u in range(USERS)],
        items=[asin(i) for i in range(ITEMS)],
        texts={
            asin(0): (TITLES[0], f'The "{TITLES[0]}", 5" wide.'),
            asin(1): (TITLES[1], f'It\'s 3M The "{TITLES[1]}", 5" wide.'),
            asin(2): (TITLES[2], ""),
        },
        counts={
            "meta_Office_Products.json.gz": (16, {"null name": 1, "not a JSON object": 1}, CORE_ITEMS),
            "reviews_Office_Products_5.json.gz": (75, {"exact duplicate": 1, "item not in catalogue": 1}, CORE_EVENT),
        },
        catalogue={asin(i) for i in range(ITEMS)},
    )


def amazon_2018(folder: Path) -> Layout:
    """Both files are JSON lines; description and feature are lists."""
    items = [
        {
            "category": ["Office Products", "Supplies"],
            "tech1": "",
            "description": [f"About the <b>{title}</b>.", "", "It’s good."],
            "fit": "",
            "title": title,
            "also_buy": [asin(1)],
            "tech2": "",
            "brand": "3M",
            "feature": ["Strong", "It's light"],
            "rank": [">#1 in Office Products"],
            "also_view": [],
            "main_cat": "Office Products",
            "similar_item": "",
            "date": "May 1, 2016",
            "price": "$5.35",
            "asin": asin(i),
            "imageURL": [],
            "imageURLHighRes": [],
        }
        for i, title in enumerate(TITLES)
    ]
    items[2] |= {"description": [], "feature": [], "brand": ""}
    changed = {**items[3], "title": "Another stapler"}
    json_lines(folder / "meta_Office_Products.json.gz", [*items, items[4], changed])
    reviews = [
        {"overall": 5.0, "vote": "5", "verified": True, "reviewTime": "03 13, 2011", "reviewerID": reviewer(u)}
        | {"asin": asin(i), "style": {"Color:": " Blue"}, "reviewerName": "Ann", "reviewText": "Good", "summary": "Ok"}
        | {"unixReviewTime": second(step)}
        for u, i, step in events()
    ]
    no_user = {key: value for key, value in reviews[0].items() if key != "reviewerID"}
    json_lines(folder / "Office_Products_5.json.gz", [*reviews, reviews[0], no_user])
    return Layout(
        users=[reviewer(u) for u in range(USERS)],
        items=[asin(i) for i in range(ITEMS)],
        texts={
            asin(1): (TITLES[1], f"3M Strong, It's light About the {TITLES[1]}., It’s good."),
            asin(2): (TITLES[2], ""),
        },
        counts={
            "meta_Office_Products.json.gz": (
                16,
                {"duplicate item id, conflicting": 1},
                {"duplicate item, identical: merged": 1, **CORE_ITEMS},
            ),
            "Office_Products_5.json.gz": (75, {"exact duplicate": 1, "null user id": 1}, CORE_EVENT),
        },
        catalogue={asin(i) for i in range(ITEMS)},
    )


def amazon_2023(folder: Path) -> Layout:
    """Times in milliseconds, a variant's asin beside its parent's, features and description as lists."""
    items = [
        {
            "main_category": "Office Products",
            "title": title,
            "average_rating": 4.5,
            "rating_number": 12,
            "features": ["Strong", "Light"],
            "description": [f"About the {title}."],
            "price": 5.35,
            "images": [{"thumb": "t.jpg", "large": "l.jpg", "variant": "MAIN", "hi_res": None}],
            "videos": [],
            "store": "3M",
            "categories": ["Office Products", "Supplies"],
            "details": {"Brand": "3M", "Is Discontinued By Manufacturer": "No"},
            "parent_asin": asin(i),
            "bought_together": None,
        }
        for i, title in enumerate(TITLES)
    ]
    items[2] |= {"store": None, "features": [], "description": []}
    json_lines(folder / "meta_Office_Products.jsonl.gz", [*items, {**items[0], "parent_asin": asin(90), "title": ""}])
    reviews = [
        {"rating": 5.0, "title": "Good", "text": "Good<br />indeed", "images": [], "asin": f"VARIANT{step}"}
        | {"parent_asin": asin(i), "user_id": reviewer(u), "timestamp": 1000 * second(step) + (923 if step else 0)}
        | {"helpful_vote": 0, "verified_purchase": True}
        for u, i, step in events()
    ]
    bad_time = {**reviews[0], "timestamp": "yesterday"}
    json_lines(folder / "Office_Products.jsonl.gz", [*reviews, bad_time, '{"rating": 5.0, "title": "torn'])
    return Layout(
        users=[reviewer(u) for u in range(USERS)],
        items=[asin(i) for i in range(ITEMS)],
        texts={
            asin(1): (TITLES[1], f"3M Strong, Light About the {TITLES[1]}."),
            asin(2): (TITLES[2], ""),
        },
        counts={
            "meta_Office_Products.jsonl.gz": (15, {"null name": 1}, CORE_ITEMS),
            "Office_Products.jsonl.gz": (75, {"timestamp not parsable": 1, "not a JSON object": 1}, CORE_EVENT),
        },
        catalogue={asin(i) for i in range(ITEMS)},
    )


def movielens_100k(folder: Path) -> Layout:
    """No headers; `|` and Windows-1252 in u.item, tabs in u.data."""
    flags = "|".join("01"[n == 5] for n in range(19))
    rows = [f"{i + 1}|{title} (1995)|01-Jan-1995||http://us.imdb.com/M/{i}|{flags}" for i, title in enumerate(TITLES)]
    rows[2] = f'3|"{TITLES[2]}" (1995)|||{"|" + flags}'  # no date, no address, and quotes that are no quoting
    (folder / "u.item").write_bytes("".join(f"{row}\n" for row in [*rows, "99|Torn"]).encode("windows-1252"))
    ratings = [f"{u + 1}\t{i + 1}\t{1 + step % 5}\t{second(step)}" for u, i, step in events()]
    bad = ["1\t500\t3\t881250949", "1\t2\t3"]
    (folder / "u.data").write_text("".join(f"{row}\n" for row in [*ratings, *bad]))
    return Layout(
        users=[str(u + 1) for u in range(USERS)],
        items=[str(i + 1) for i in range(ITEMS)],
        texts={"1": (f"{TITLES[0]} (1995)", ""), "2": (f"{TITLES[1]} (1995)", "")},
        counts={
            "u.item": (15, {"wrong number of fields": 1}, CORE_ITEMS),
            "u.data": (75, {"item not in catalogue": 1, "wrong number of fields": 1}, CORE_EVENT),
        },
        catalogue={str(i + 1) for i in range(ITEMS)},
    )


def movielens_1m(folder: Path) -> Layout:
    """`::` and Windows-1252, no headers; a colon and a quote within a title."""
    titles = [*TITLES]
    titles[4] = 'Glue: "Sticky" Stories'
    rows = [f"{i + 1}::{title} (1995)::Animation|Children's|Comedy" for i, title in enumerate(titles)]
    (folder / "movies.dat").write_bytes("".join(f"{row}\n" for row in [*rows, "99::Torn"]).encode("windows-1252"))
    ratings = [f"{u + 1}::{i + 1}::{1 + step % 5}::{second(step)}" for u, i, step in events()]
    (folder / "ratings.dat").write_text("".join(f"{row}\n" for row in [*ratings, "1::2::3", "1::99::3::978300760"]))
    return Layout(
        users=[str(u + 1) for u in range(USERS)],
        items=[str(i + 1) for i in range(ITEMS)],
        texts={
            "1": (f"{TITLES[0]} (1995)", "Animation|Children's|Comedy"),
            "5": (f"{titles[4]} (1995)", "Animation|Children's|Comedy"),
        },
        counts={
            "movies.dat": (15, {"wrong number of fields": 1}, CORE_ITEMS),
            "ratings.dat": (75, {"wrong number of fields": 1, "item not in catalogue": 1}, CORE_EVENT),
        },
        catalogue={str(i + 1) for i in range(ITEMS)},
    )


def movielens_32m(folder: Path) -> Layout:
    """Headers, UTF-8, quoted where a title holds a comma, CRLF line ends in the older files."""
    titles = [f'"{title} (1995)"' if "," in title else f"{title} (1995)" for title in TITLES]
    titles[4] = '"Glue ""Sticky"" Stories, The (1995)"'
    rows = ["movieId,title,genres", *(f"{i + 1},{title},Comedy|Drama" for i, title in enumerate(titles))]
    rows[3] = f"3,{titles[2]},(no genres listed)"
    (folder / "movies.csv").write_bytes("".join(f"{row}\r\n" for row in rows).encode())
    ratings = [f"{u + 1},{i + 1},{0.5 + step % 5},{second(step)}" for u, i, step in events()]
    rows = ["userId,movieId,rating,timestamp", *ratings, "1,99,3.0,978300760", "1,1,3.0,"]
    (folder / "ratings.csv").write_text("".join(f"{row}\n" for row in rows))
    return Layout(
        users=[str(u + 1) for u in range(USERS)],
        items=[str(i + 1) for i in range(ITEMS)],
        texts={
            "2": (f"{TITLES[1]} (1995)", "Comedy|Drama"),
            "3": (f"{TITLES[2]} (1995)", "(no genres listed)"),
            "5": ('Glue "Sticky" Stories, The (1995)', "Comedy|Drama"),
        },
        counts={
            "movies.csv": (14, {}, CORE_ITEMS),
            "ratings.csv": (75, {"item not in catalogue": 1, "null timestamp": 1}, CORE_EVENT),
        },
        catalogue={str(i + 1) for i in range(ITEMS)},
    )


def instacart(folder: Path) -> Layout:
    """A user's events are three baskets of two; the last is in the train file, before which prior may say no more."""
    products = ["product_id,product_name,aisle_id,department_id"]
    products += [f'{i + 1},"{title}",1,1' if "," in title else f"{i + 1},{title},1,1" for i, title in enumerate(TITLES)]
    (folder / "products.csv").write_text("".join(f"{row}\n" for row in products), encoding="utf-8")
    orders = ["order_id,user_id,eval_set,order_number,order_dow,order_hour_of_day,days_since_prior_order"]
    files = {"prior": ["order_id,product_id,add_to_cart_order,reordered"]}
    files["train"] = files["prior"][:]
    order_of = {}
    for u in range(USERS):
        for number in (3, 1, 2):  # order ids do not grow with time
            kind = "train" if number == 3 else "prior"
            order_of[u, number] = 1000 - 10 * u - (5 * number) % 7
            since = "" if number == 1 else "7.0"
            orders.append(f"{order_of[u, number]},{u + 1},{kind},{number},2,08,{since}")
    orders.append("5000,1,test,4,2,08,7.0")  # the published test orders have no lines
    for (u, number), order in sorted(order_of.items(), key=lambda entry: entry[1]):
        lines = [f"{order},{(u + 2 * (number - 1) + n) % ITEMS + 1},{n + 1},0" for n in range(2)]
        files["train" if number == 3 else "prior"] += lines
    files["prior"].append("7777,1,1,0")  # of no order
    files["train"].append(f"{order_of[0, 3]},999,3,0")  # of no product
    (folder / "orders.csv").write_text("".join(f"{row}\n" for row in orders))
    for kind, rows in files.items():
        (folder / f"order_products__{kind}.csv").write_text("".join(f"{row}\n" for row in rows))
    return Layout(
        users=[str(u + 1) for u in range(USERS)],
        items=[str(i + 1) for i in range(ITEMS)],
        texts={"1": (TITLES[0], ""), "2": (TITLES[1], "")},
        counts={
            "products.csv": (14, {}, {}),
            "orders.csv": (37, {}, {}),
            "order_products__prior.csv": (49, {"no row of orders.csv with this order_id": 1}, {}),
            "order_products__train.csv": (25, {"item not in catalogue": 1}, {}),
        },
        catalogue={str(i + 1) for i in range(14)},
    )


def esci(folder: Path) -> Layout:
    """Parquet; the same product ids in another locale with other texts; judgements of four labels."""
    products = [
        {
            "product_id": asin(i),
            "product_title": title,
            "product_description": None if i == 2 else f"<p>About the {title}.</p>",
            "product_bullet_point": None if i == 2 else "Strong\nLight",
            "product_brand": None if i == 2 else "3M",
            "product_color": "Blue",
            "product_locale": "us",
        }
        for i, title in enumerate(TITLES)
    ]
    abroad = [{**product, "product_title": "Otro título", "product_locale": "es"} for product in products[:3]]
    untitled = {**products[0], "product_id": asin(90), "product_title": None}
    pd.DataFrame([*abroad, *products, untitled]).to_parquet(folder / "shopping_queries_dataset_products.parquet")

    def example(number: int, query: int, item: int, label: str, locale: str = "us") -> dict:
        text = {"example_id": number, "query": f"query {query}", "query_id": query, "product_id": asin(item)}
        return (
            text
            | {"product_locale": locale, "esci_label": label, "small_version": 0, "large_version": 1}
            | {"split": "train" if query % 2 else "test"}
        )

    exact = [example(1000 * u + step, u, i, "E") for u, i, step in events(rare=False)]
    others = [example(99_000, 0, 5, "S"), example(99_001, 0, 6, "I"), example(99_002, 0, 7, "C")]
    foreign = [example(99_003, 500, 1, "E", "es"), example(99_004, 500, 2, "E", "es")]
    unknown = [example(99_005, 0, 90, "E")]
    rows = [*exact, *others, *foreign, *unknown]
    pd.DataFrame(rows).to_parquet(folder / "shopping_queries_dataset_examples.parquet")
    return Layout(
        users=[str(u) for u in range(USERS)],
        items=[asin(i) for i in range(ITEMS)],
        texts={
            asin(1): (TITLES[1], f"3M Strong Light About the {TITLES[1]}."),
            asin(2): (TITLES[2], ""),
        },
        counts={
            "shopping_queries_dataset_products.parquet": (18, {"null name": 1}, {"left out by keep": 3}),
            "shopping_queries_dataset_examples.parquet": (78, {"item not in catalogue": 1}, {"left out by keep": 5}),
        },
        catalogue={asin(i) for i in range(14)},
    )


def vibrent(folder: Path) -> Layout:
    """`;` between fields, tags as list text; rentals in two files, one row in both."""
    head = (
        "id;name;description;group;owner;timeCreated;retailPrice;pricePerWeek;pricePerMonth;outfit_tags;tag_categories"
    )
    rows = [
        f"o{i};{title};About the {title}.;g{i // 2};owner.x;2020-01-01 09:30:00;900;100;200;['Red', 'Cotton'];['Color']"
        for i, title in enumerate(TITLES)
    ]
    rows.append("o90;;No name.;g9;owner.x;2020-01-01 09:30:00;900;100;200;[];[]")
    (folder / "outfits.csv").write_text("".join(f"{row}\n" for row in [head, *rows]), encoding="utf-8")

    def rental(u: int, item: str, day: pd.Timestamp, days: int = 4) -> str:
        return f"c{u};{item};{day:%Y-%m-%d};{day + pd.Timedelta(days=days):%Y-%m-%d}"

    def day(step: int) -> pd.Timestamp:
        return pd.Timestamp("2020-01-01") + pd.Timedelta(days=10 * step)

    rentals = [rental(u, f"o{i}", day(step)) for u, i, step in events(rare=False)]
    files = {"original_orders.csv": rentals[:40], "user_activity_triplets.csv": rentals[40:]}
    files["original_orders.csv"] = [*files["original_orders.csv"], rental(0, "o0", day(2))]  # again within 30 days
    files["user_activity_triplets.csv"] = [
        *files["user_activity_triplets.csv"],
        rentals[0],
        rental(3, "o90", day(1)),
        rental(3, "o7", day(9), -3),
    ]
    for name, lines in files.items():
        text = "".join(f"{row}\n" for row in ["customer.id;outfit.id;rentalPeriod.start;rentalPeriod.end", *lines])
        (folder / name).write_text(text)
    return Layout(
        users=[f"c{u}" for u in range(USERS)],
        items=[f"o{i}" for i in range(ITEMS)],
        texts={"o1": (TITLES[1], f"About the {TITLES[1]}. Red, Cotton")},
        counts={
            "outfits.csv": (15, {"null name": 1}, {}),
            "original_orders.csv": (41, {"repeat within 30 days": 1}, {}),
            "user_activity_triplets.csv": (
                35,
                {"end before start": 1, "exact duplicate": 1, "item not in catalogue": 1},
                {},
            ),
        },
        catalogue={f"o{i}" for i in range(14)},
    )


def office_products(folder: Path) -> Layout:
    """Two plain CSV files; the timestamp is a position."""
    items = pd.DataFrame(
        {"item_id": [f"i{i}" for i in range(14)], "title": TITLES, "description": "One, two", "brand": "3M"}
    )
    items.to_csv(folder / "items.csv", index=False)
    rows = [(f"u{u}", f"i{i}", step) for u, i, step in events(rare=False)]
    frame = pd.DataFrame([*rows, ("u0", "i99", 9)], columns=["user_id", "item_id", "timestamp"])
    frame.to_csv(folder / "interactions.csv", index=False)
    return Layout(
        users=[f"u{u}" for u in range(USERS)],
        items=[f"i{i}" for i in range(ITEMS)],
        texts={"i1": (TITLES[1], "One, two")},
        counts={"items.csv": (14, {}, {}), "interactions.csv": (73, {"item not in catalogue": 1}, {})},
        catalogue={f"i{i}" for i in range(14)},
    )


LAYOUTS = {
    layout.__name__: layout
    for layout in (
        amazon_2014,
        amazon_2018,
        amazon_2023,
        movielens_100k,
        movielens_1m,
        movielens_32m,
        instacart,
        esci,
        vibrent,
        office_products,
    )
}
