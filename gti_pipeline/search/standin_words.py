"""The words of the jobs stand-in: occupations with their skills, and sentences of a profile."""

from __future__ import annotations

OCCUPATIONS: dict[str, tuple[str, ...]] = {
    "Data Engineer": (
        "SQL", "Python", "stream processing", "data modelling", "cloud storage", "orchestration", "Scala", "testing",
    ),
    "Nurse": (
        "wound care", "triage", "medication", "patient records", "paediatrics", "intensive care", "vaccination",
        "night shifts",
    ),
    "Carpenter": (
        "framing", "cabinet making", "blueprints", "roofing", "wood turning", "site safety", "stairs", "restoration",
    ),
    "Accountant": (
        "payroll", "tax returns", "auditing", "spreadsheets", "invoicing", "budgeting", "annual accounts", "VAT",
    ),
    "Web Developer": (
        "TypeScript", "CSS", "accessibility", "web components", "GraphQL", "browser testing", "animation", "web design",
    ),
    "Sales Manager": (
        "negotiation", "account planning", "cold calling", "forecasting", "contracts", "trade fairs", "retail chains",
        "pricing",
    ),
    "Teacher": (
        "mathematics", "science lessons", "curriculum design", "special needs", "classroom management", "exams",
        "music lessons", "parent meetings",
    ),
    "Electrician": (
        "wiring", "fault finding", "solar panels", "switchboards", "lighting", "fire alarms", "lifts", "inspection",
    ),
    "Cook": (
        "baking", "menu planning", "butchery", "food hygiene", "sauces", "pastry", "seafood", "banquets",
    ),
    "Logistics Planner": (
        "route planning", "customs", "warehousing", "fleet management", "stock control", "shipping papers",
        "cold chain", "rail freight",
    ),
}  # fmt: skip
SENIORITIES = ("junior", "experienced", "senior", "lead")
LOCATIONS = ("Aldermoor", "Brynvik", "Castelmar", "Dunholm", "Elverdal")
EXTRAS = ("first aid", "French", "German", "driving licence", "public speaking", "project management")
SUMMARIES = (
    "{Seniority} {occupation} based in {location}, at home with {skills}.",
    "{occupation} from {location}. Has worked with {skills}; now {seniority} in the trade.",
    "Looks for a {seniority} post near {location} and brings {skills}.",
    "{years} years as {occupation}: {skills}. {Seniority}, lives in {location}.",
)
YEARS = {"junior": (0, 2), "experienced": (3, 6), "senior": (7, 14), "lead": (10, 25)}
