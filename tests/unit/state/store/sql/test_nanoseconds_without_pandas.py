"""Times in nanoseconds go through SQL where pandas is not installed: it is no dependency, and Python's own times end at
microseconds.
"""

import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import sys

class NoPandas:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "pandas":
            raise ImportError("pandas is not installed")

sys.meta_path.insert(0, NoPandas())

import bucketline as bl
import pyarrow as pa

root = sys.argv[1]
time, later = "TIMESTAMP '1969-12-31 23:59:59.999999999'", "TIMESTAMP '2023-01-01 00:00:00.000000001'"
table = bl.create_table(root + "/d.db/t", "id INT NOT NULL, x TIMESTAMP(9)", ["id"], options={"bucket": "1"})
for text in (
    f"INSERT INTO d.t VALUES (1, {time}), (2, NULL), (3, {time})",
    f"UPDATE d.t SET x = {later} WHERE id = 2",
    f"DELETE FROM d.t WHERE x = {time} AND id = 3",
    "MERGE INTO d.t USING (SELECT 4 AS id) s ON d.t.id = s.id "
    f"WHEN NOT MATCHED THEN INSERT (id, x) VALUES (4, {later})",
    "INSERT INTO d.t VALUES (5, TIMESTAMP '1969-12-31 23:59:59.999999998'), (6, TIMESTAMP '1700-01-01 00:00:00')",
    "UPDATE d.t SET x = (SELECT x FROM d.t WHERE id = 5) WHERE id = 6",
    "DELETE FROM d.t WHERE x IN (SELECT min(x) FROM d.t)",
):
    bl.sql(None, text, warehouse=root)
found = bl.open_table(table.path).to_arrow()
print(sorted(zip(found["id"].to_pylist(), found["x"].cast(pa.int64()).to_pylist())))
print(bl.sql(None, f"SELECT id FROM d.t WHERE x = {time}", warehouse=root)["id"].to_pylist())
"""


def test_sql_stores_and_finds_nanoseconds_without_pandas(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(tmp_path)], capture_output=True, text=True, check=False, timeout=120
    )
    later = 1_672_531_200_000_000_001
    assert done.stdout.splitlines() == [f"[(1, -1), (2, {later}), (4, {later})]", "[1]"], done.stderr[-1500:]
