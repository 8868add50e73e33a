"""Every column name of every table, so that a misspelling is an ImportError and not an empty join."""

ITEM_ID = "item_id"
TITLE = "title"
DESCRIPTION = "description"
GROUP_ID = "group_id"

USER_ID = "user_id"
TIMESTAMP = "timestamp"
SOURCE_ROW = "source_row"  # position in the source, breaks ties of equal timestamps

FILE = "file"
LINE = "line"
REASON = "reason"
RAW = "raw"

QUERY_ID = "query_id"
TEXT = "text"
GRADE = "grade"  # 2 good, 1 maybe, 0 not

SPLIT = "split"
HISTORY = "history"
TARGET = "target"

EMBEDDING = "embedding"
LEVEL = "level"
CODE = "code"
CODES = "codes"
VECTOR = "vector"

DIRECTION = "direction"
TEMPLATE = "template"
PROMPT = "prompt"
ANSWER = "answer"
PHASE = "phase"  # before or after grounding
WINS = "wins"  # share of other titles that are less likely than the item's own

RANK = "rank"
SCORE = "score"

STAGE = "stage"
STEP = "step"
METRIC = "metric"
K = "k"
VALUE = "value"
LOW = "low"
HIGH = "high"
NUM_USERS = "num_users"
ARM = "arm"
SLICE = "slice"

BLOCK = "block"
POSITION = "position"
TOKEN = "token"
WORD = "word"
COSINES = "cosines"
