"""Makes the tables of data/java.db, and what Paimon Java reads from them: `python -m tests.golden.make_java_tables`.

Needed only when a table is added; the tables themselves are in the repository, and are never made again in place.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.peers.peer import PaimonJava

DATA = Path(__file__).resolve().parent / "data"
TABLES = DATA / "java.db"


def F(name: str, kind: object) -> dict[str, Any]:
    return {"name": name, "type": kind}


ROWT = {
    "type": "ROW",
    "fields": [
        {"id": 100, "name": "a", "type": "INT"},
        {
            "id": 101,
            "name": "b",
            "type": {
                "type": "ROW",
                "fields": [
                    {"id": 102, "name": "c", "type": "STRING"},
                    {"id": 103, "name": "d", "type": "TIMESTAMP(3)"},
                ],
            },
        },
    ],
}
fields = [
    F("id", "INT NOT NULL"),
    F("bo", "BOOLEAN"),
    F("ti", "TINYINT"),
    F("si", "SMALLINT"),
    F("bi", "BIGINT"),
    F("fl", "FLOAT"),
    F("do", "DOUBLE"),
    F("d9", "DECIMAL(9, 2)"),
    F("d18", "DECIMAL(18, 3)"),
    F("d38", "DECIMAL(38, 10)"),
    F("ch", "CHAR(5)"),
    F("vc", "VARCHAR(10)"),
    F("st", "STRING"),
    F("bn", "BINARY(4)"),
    F("by", "BYTES"),
    F("da", "DATE"),
    F("tm", "TIME(3)"),
    F("t3", "TIMESTAMP(3)"),
    F("t6", "TIMESTAMP(6)"),
    F("l3", "TIMESTAMP(3) WITH LOCAL TIME ZONE"),
    F("l6", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
    F("ar", {"type": "ARRAY", "element": "INT"}),
    F("arr", {"type": "ARRAY", "element": ROWT}),
    F("ma", {"type": "MAP", "key": "STRING NOT NULL", "value": "INT"}),
    F("mi", {"type": "MAP", "key": "INT NOT NULL", "value": {"type": "ARRAY", "element": "STRING"}}),
    F("mu", {"type": "MULTISET", "element": "STRING NOT NULL"}),
    F("ro", ROWT),
]
rows = [
    {
        "id": 1,
        "bo": True,
        "ti": -3,
        "si": 300,
        "bi": 2**40,
        "fl": 1.5,
        "do": -2.25,
        "d9": "1234567.89",
        "d18": "-1.500",
        "d38": "-12345678901234567890.1234567890",
        "ch": "ab",
        "vc": "hello",
        "st": "héllo wörld",
        "bn": "00ff",
        "by": "0102030405060708090a",
        "da": "2024-02-29",
        "tm": "01:02:03.004",
        "t3": "2024-01-01T00:00:00.123",
        "t6": "1969-12-31T23:59:59.123456",
        "l3": "2024-07-01T12:00:00.5",
        "l6": "2024-01-01T00:00:00.000001",
        "ar": [1, None, 3],
        "arr": [{"a": 1, "b": {"c": "x", "d": "2024-01-01T00:00:00.001"}}, None, {"a": None, "b": None}],
        "ma": [["k", 1], ["z", None]],
        "mi": [[7, ["p", None]], [8, None]],
        "mu": [["q", 2]],
        "ro": {"a": 5, "b": {"c": None, "d": "1950-01-01T00:00:00"}},
    },
    {"id": 2},
]


def dump(name: str, rows: list[dict[str, Any]]) -> None:
    (DATA / "expected" / f"java.{name}.jsonl").write_text(
        "".join(sorted(json.dumps(r, ensure_ascii=False, sort_keys=True) + "\n" for r in rows))
    )


def evolve(t: Path, change: Callable[[dict[str, Any]], None]) -> None:
    n = max(int(p.name[7:]) for p in (t / "schema").glob("schema-*"))
    s = json.loads((t / "schema" / f"schema-{n}").read_text())
    change(s)
    s["id"] = n + 1
    (t / "schema" / f"schema-{n + 1}").write_text(json.dumps(s))


def main() -> None:
    shutil.rmtree(TABLES, ignore_errors=True)
    TABLES.mkdir(parents=True)
    with PaimonJava() as j:

        def done(name, **k):
            dump(name, j.read(TABLES / name, **k))

        for fmt in ["parquet", "orc", "avro"]:
            t = TABLES / f"all_{fmt}"
            j.create(t, fields, options={"file.format": fmt, "bucket": "-1"})
            j.write(t, rows)
            done(f"all_{fmt}")
        # one table, three formats, several schema versions
        t = TABLES / "evolved"
        nested = {
            "type": "ROW",
            "fields": [{"id": 4, "name": "x", "type": "INT"}, {"id": 5, "name": "y", "type": "STRING"}],
        }
        j.create(
            t,
            [
                F("k", "INT NOT NULL"),
                F("a", "INT"),
                F("b", "STRING"),
                F("n", nested),
                F("m", {"type": "MAP", "key": "STRING NOT NULL", "value": nested}),
            ],
            primary_keys=["k"],
            options={"bucket": "1", "file.format": "avro", "write-only": "true"},
        )

        def base(k):
            return dict(k=k, a=k * 10, b=f"b{k}", n={"x": k, "y": f"y{k}"}, m=[[f"m{k}", {"x": k, "y": None}]])

        j.write(t, [base(k) for k in range(6)])

        def c1(s):
            s["options"]["file.format"] = "orc"
            by = {f["name"]: f for f in s["fields"]}
            by["a"]["type"] = "BIGINT"
            by["a"]["name"] = "a2"
            by["n"]["type"]["fields"] = [
                {"id": by["n"]["type"]["fields"][1]["id"], "name": "why", "type": "STRING"},
                {"id": s["highestFieldId"] + 1, "name": "z", "type": "DOUBLE"},
                by["n"]["type"]["fields"][0],
            ]
            s["highestFieldId"] += 2
            s["fields"] = [
                by["k"],
                by["b"],
                {"id": s["highestFieldId"], "name": "added", "type": "DECIMAL(10, 2)"},
                by["a"],
                by["n"],
                by["m"],
            ]

        evolve(t, c1)
        j.write(
            t,
            [
                dict(k=k, b=f"B{k}", added="1.50", a2=2**40 + k, n={"why": f"w{k}", "z": 0.5, "x": None}, m=[])
                for k in (3, 4, 7)
            ],
        )

        def c2(s):
            s["options"]["file.format"] = "parquet"
            s["fields"] = [f for f in s["fields"] if f["name"] != "b"]
            by = {f["name"]: f for f in s["fields"]}
            by["added"]["type"] = "DECIMAL(20, 4)"
            s["highestFieldId"] += 1
            s["fields"].append({"id": s["highestFieldId"], "name": "b", "type": "TIMESTAMP(6)"})
            for f in by["n"]["type"]["fields"]:
                if f["name"] == "x":
                    f["type"] = "BIGINT"
            by["m"]["type"]["value"]["fields"].reverse()

        evolve(t, c2)
        j.write(
            t,
            [
                dict(
                    k=4,
                    added="9.9999",
                    a2=-1,
                    n={"why": "last", "z": None, "x": 2**35},
                    m=[["q", {"x": 1, "y": "r"}]],
                    b="2024-01-01T01:02:03.000004",
                ),
                dict(k=9, added=None, a2=None, n=None, m=None, b=None),
            ],
        )
        done("evolved")
        # deletion vectors of both kinds, with keys that are composite
        for bits in ("32", "64"):
            t = TABLES / f"dv{bits}"
            j.create(
                t,
                [F("k", "INT NOT NULL"), F("s", "STRING NOT NULL"), F("v", "STRING")],
                primary_keys=["k", "s"],
                options={
                    "bucket": "2",
                    "deletion-vectors.enabled": "true",
                    "deletion-vectors.bitmap64": str(bits == "64").lower(),
                    "file.format": "orc" if bits == "64" else "parquet",
                },
            )
            j.write(t, [dict(k=k, s="é" * (k % 3), v=f"v{k}") for k in range(60)])
            j.write(t, [dict(k=k, s="é" * (k % 3), v=f"w{k}") for k in range(0, 60, 7)])
            j.write(t, [dict(k=k, s="é" * (k % 3), _row_kind="-D") for k in range(0, 60, 5)])
            j.write(t, [dict(k=1, s="é", v="unseen")], write_only=True)
            done(f"dv{bits}")
            dump(f"dv{bits}.ro", j.read(t, system="ro"))
        # partitions
        ptypes = [
            F("p_s", "STRING"),
            F("p_d", "DATE"),
            F("p_ts", "TIMESTAMP(6)"),
            F("p_dec", "DECIMAL(20, 3)"),
            F("p_b", "BOOLEAN"),
            F("p_f", "DOUBLE"),
            F("p_i", "BIGINT"),
            F("p_t", "TIME(3)"),
            F("p_l", "TIMESTAMP(3) WITH LOCAL TIME ZONE"),
        ]
        prow = [
            dict(
                p_s="a b/c:d=e%f#gé",
                p_d="2024-01-01",
                p_ts="2024-01-01T00:00:00.123456",
                p_dec="1.500",
                p_b=True,
                p_f=1e10,
                p_i=-5,
                p_t="01:00:00",
                p_l="2024-01-01T00:00:00",
            ),
            dict(p_s=""),
            dict(
                p_s="  ",
                p_d="1969-12-31",
                p_ts="1970-01-01T00:01:00",
                p_dec="-0.001",
                p_b=False,
                p_f=-0.5,
                p_i=0,
                p_t="00:00:00.001",
                p_l="1969-01-01T00:00:00.5",
            ),
            dict(),
        ]
        for legacy in ("true", "false"):
            ps = ptypes if legacy == "true" else ptypes[:-1]
            t = TABLES / f"partitions_{legacy}"
            names = {f["name"] for f in ps}
            j.create(
                t,
                [F("v", "INT"), *ps],
                partition_keys=[f["name"] for f in ps],
                options={"partition.legacy-name": legacy},
            )
            j.write(t, [dict(v=i, **{k: x for k, x in r.items() if k in names}) for i, r in enumerate(prow)])
            done(t.name)
        # postponed rows
        t = TABLES / "postponed"
        j.create(t, [F("k", "INT NOT NULL"), F("v", "STRING")], primary_keys=["k"], options={"bucket": "-2"})
        j.write(t, [dict(k=2, v="b"), dict(k=1, v="a"), dict(k=2, v="b2")])
        done("postponed")
        # changelog and appended changes
        for producer in ("none", "input", "lookup"):
            t = TABLES / f"changes_{producer}"
            j.create(
                t,
                [F("p", "INT NOT NULL"), F("k", "INT NOT NULL"), F("v", "STRING")],
                primary_keys=["p", "k"],
                partition_keys=["p"],
                options={
                    "bucket": "1",
                    "changelog-producer": producer,
                    "file.format": "avro" if producer == "input" else "parquet",
                },
            )
            for i in range(4):
                j.write(
                    t,
                    [dict(p=q, k=k, v=f"{i}-{k}") for q in (0, 1) for k in range(i, i + 4)]
                    + [dict(p=0, k=i, v=None, _row_kind="-D")],
                )
            last = max(s["snapshot_id"] for s in j.read(t, system="snapshots"))
            done(t.name)
            dump(f"{t.name}.since1", j.read(t, options={"incremental-between": f"1,{last}"}, row_kinds=True))
            dump(f"{t.name}.between", j.read(t, options={"incremental-between": f"1,{last - 1}"}, row_kinds=True))
        t = TABLES / "thin"
        j.create(
            t,
            [F("k", "INT NOT NULL"), F("j", "STRING NOT NULL"), F("v", "STRING")],
            primary_keys=["j", "k"],
            options={
                "bucket": "1",
                "data-file.thin-mode": "true",
                "file.format": "orc",
                "metadata.stats-keep-first-n-columns": "1",
            },
        )
        for i in range(3):
            j.write(t, [dict(k=k, j=f"j{k % 2}", v=f"{i}") for k in range(i * 2, i * 2 + 6)])
        done("thin")
        t = TABLES / "external"
        j.create(
            t,
            [F("k", "INT NOT NULL"), F("v", "STRING")],
            primary_keys=["k"],
            options={"bucket": "1", "data-file.path-directory": "data"},
        )
        j.write(t, [dict(k=k, v=str(k)) for k in range(5)])
        done("external")
        for form in ("orc", "parquet"):
            t = TABLES / f"manifests_{form}"
            j.create(
                t,
                [F("k", "INT NOT NULL"), F("v", "STRING")],
                primary_keys=["k"],
                options={"bucket": "1", "manifest.format": form, "deletion-vectors.enabled": "true"},
            )
            for i in range(2):
                j.write(t, [dict(k=k, v=f"{i}-{k}") for k in range(60 if i == 0 else 3)])
            done(t.name)


if __name__ == "__main__":
    main()
