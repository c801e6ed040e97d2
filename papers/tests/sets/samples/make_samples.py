"""Write the samples that the makers of public sets are tested on: `python -m
papers.tests.sets.samples.make_samples`.

Every value is made up here. The files have the form of the public ones: names, columns (of the census' 286 some),
codes, archives, the database's tables and the posts' encoding.
"""

from __future__ import annotations

import io
import random
import sqlite3
import zipfile
from pathlib import Path

FOLDER = Path(__file__).parent
CODES = {
    "COW": ("b", "1", "2", "3", "4", "5", "6", "7", "8", "9"),
    "SCHL": ("bb", "01", "16", "21"),
    "MAR": ("1", "3", "5"),
    "OCCP": ("bbbb", "0010", "0020", "9830"),
    "POBP": ("001", "002", "303"),
    "RELP": ("00", "02", "17"),
    "SEX": ("1", "2"),
    "RAC1P": ("1", "2", "9"),
}
POSTS = (("machine-learning", "math"), ("github", "pdf"), ("facebook", "hibernate"), ("plot", "cookies"))


def write_all() -> None:
    """Write all files."""
    draw = random.Random(17)
    write_dictionary()
    (FOLDER / "psam_p01.csv").write_text(census(draw, "01", 48))
    zipped("csv_pak.zip", "psam_p02.csv", census(draw, "02", 40))
    write_posts(draw)
    (FOLDER / "train.csv").write_text(trips(draw, 60))
    zipped("application_train.csv.zip", "application_train.csv", applications(draw, 70))


def zipped(archive: str, name: str, text: str) -> None:
    """Pack one file, always into the same bytes."""
    with zipfile.ZipFile(FOLDER / archive, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr(zipfile.ZipInfo(name, (2018, 1, 1, 0, 0, 0)), text, zipfile.ZIP_DEFLATED)


def write_dictionary() -> None:
    """Write the survey's dictionary: a NAME line for each variable, a VAL line for each value."""
    lines = ['NAME,AGEP,N,2,"Age"', 'VAL,AGEP,N,2,"0","0","Under 1 year"', 'VAL,AGEP,N,2,"1","99","1 to 99 years"']
    for name, codes in CODES.items():
        lines.append(f'NAME,{name},C,{len(codes[0])},"A variable"')
        lines += [f'VAL,{name},C,{len(code)},"{code}","{code}","What {code} means, of {name}"' for code in codes]
    (FOLDER / "PUMS_Data_Dictionary_2018.csv").write_text("\r\n".join(lines) + "\r\n")


def census(draw: random.Random, state: str, count: int) -> str:
    """Write persons, every fifth of whom ACSIncome leaves out."""
    names = (
        "RT",
        "SERIALNO",
        "ST",
        "AGEP",
        "COW",
        "MAR",
        "OCCP",
        "PINCP",
        "POBP",
        "PWGTP",
        "RAC1P",
        "RELP",
        "SCHL",
        "SEX",
        "WKHP",
    )
    lines = [",".join(names)]
    for number in range(count):
        person = {name: draw.choice([code for code in codes if "b" not in code]) for name, codes in CODES.items()}
        person |= {"RT": "P", "SERIALNO": f"2018{number:09}", "ST": state, "AGEP": str(draw.randint(17, 90))}
        person |= {"PINCP": str(draw.randint(101, 90_000)), "PWGTP": str(draw.randint(1, 300)), "WKHP": "40"}
        person["COW"] = ("1", "2", "5", "6")[number % 4]
        if number % 5 == 4:
            person |= ({"AGEP": "16"}, {"PINCP": "-5000"}, {"WKHP": "", "OCCP": "", "COW": ""}, {"PINCP": ""})[
                number // 5 % 4
            ]
        lines.append(",".join(person[name] for name in names))
    return "\n".join(lines) + "\n"


def write_posts(draw: random.Random) -> None:
    """Write the archive's database."""
    path = FOLDER / "stackoverflow.sqlite"
    path.unlink(missing_ok=True)
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE examples (split_name TEXT, client_id TEXT, serialized_example_proto BLOB)")
    database.execute("CREATE TABLE client_metadata (client_id TEXT, split_name TEXT, num_examples INTEGER)")
    words = ["how", "why", "array", "loop", "page", "login", "query", "model", "graph", "print", "error", "file"]
    rows = []
    for user in range(12):
        for number in range(4):
            tags = [draw.choice(draw.choice(POSTS)), draw.choice(("python", "java", "math"))]
            if number == 3:
                tags.reverse()
            text = " ".join(draw.choice(words) for _ in range(6))
            post = {
                "tags": "|".join(dict.fromkeys(tags)),
                "tokens": f"{text} {user} {number}",
                "title": "a title",
                "type": "question",
            }
            rows.append(("train", f"{user:08}", example(post, draw.randint(-3, 300))))
    rows.append(("heldout", "00000099", example({"tags": "math", "tokens": "held out"}, 1)))
    database.executemany("INSERT INTO examples VALUES (?, ?, ?)", rows)
    database.commit()
    database.execute("VACUUM")
    database.close()


def example(texts: dict[str, str], score: int) -> bytes:
    """Encode a tf.train.Example: texts, and a score as an integer."""
    entries = [field(1, name.encode()) + field(2, field(1, field(1, text.encode()))) for name, text in texts.items()]
    entries.append(field(1, b"score") + field(2, field(3, field(1, varint(score % 2**64)))))
    return field(1, b"".join(field(1, entry) for entry in entries))


def field(number: int, content: bytes) -> bytes:
    """Encode a field that holds bytes."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    """Encode a number, seven bits to a byte."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*parts, value))


def trips(draw: random.Random, count: int) -> str:
    """Write taxi trips."""
    lines = [
        "id,vendor_id,pickup_datetime,dropoff_datetime,passenger_count,pickup_longitude,pickup_latitude,"
        "dropoff_longitude,dropoff_latitude,store_and_fwd_flag,trip_duration"
    ]
    for number in range(count):
        at = f"2016-03-{14 + number % 7:02} {draw.randint(0, 22):02}"
        place = [f"{-74 + draw.random() / 4:.6f}", f"{40.6 + draw.random() / 4:.6f}"]
        place += [f"{-74 + draw.random() / 4:.6f}", f"{40.6 + draw.random() / 4:.6f}"]
        minutes = draw.randint(1, 59)
        cells = [f"id{number:07}", "2", f"{at}:00:00", f"{at}:{minutes:02}:30", str(draw.randint(1, 6)), *place, "N"]
        lines.append(",".join((*cells, str(60 * minutes + 30))))
    return "\n".join(lines) + "\n"


def applications(draw: random.Random, count: int) -> str:
    """Write loan applications, some without a flat."""
    from fastlloyd_papers.sets.kaggle import LOAN_COLUMNS

    text = io.StringIO()
    text.write(",".join(("SK_ID_CURR", "TARGET", "NAME_CONTRACT_TYPE", *reversed(LOAN_COLUMNS))) + "\n")
    for number in range(count):
        cells = [f"{draw.random():.4f}" for _ in LOAN_COLUMNS]
        if number % 7 == 3:
            cells[2] = ""
        text.write(",".join((str(100_002 + number), "0", "Cash loans", *cells)) + "\n")
    return text.getvalue()


if __name__ == "__main__":
    write_all()
