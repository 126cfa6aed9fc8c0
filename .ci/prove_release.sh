#!/usr/bin/env bash
# Proves a release candidate in an empty environment: `.ci/prove_release.sh WHEEL [COMMIT]`, by `.ci/run package`.
#   1. installs the wheel, with the extras `spark` and `kafka`, and nothing else
#   2. runs the quickstart
#   3. runs the job of the README against a Kafka of this machine, twice
#   4. starts a job with the release before (COMMIT; by default the first release), and goes on with its checkpoint
# The Kafka broker is that of the tests, run by the Python in BUCKETLINE_BROKER_PYTHON (default: the python on PATH).
set -euo pipefail
wheel="$(realpath "$1")" before="${2:-75f40c6}"
root="$(cd "$(dirname "$0")/.." && pwd)"
broker_python="${BUCKETLINE_BROKER_PYTHON:-$(command -v python)}"
work="$(mktemp -d "${TMPDIR:-/tmp}/bucketline-release-XXXXXX")"
broker=""
leave() {
  [ -z "$broker" ] || { kill "$broker" 2>/dev/null || true; wait "$broker" 2>/dev/null || true; }
  rm -rf "$work"
}
trap leave EXIT
say() { echo "-- $*"; }
unset PYTHONPATH PYSPARK_SUBMIT_ARGS SPARK_HOME
cd "$work"

say "an empty environment"
python3 -m venv venv
venv/bin/python -m pip install -q -U pip
venv/bin/python -m pip install -q "$wheel[spark,kafka]" 'pyspark==4.0.*'
export PATH="$work/venv/bin:$PATH" PYSPARK_PYTHON="$work/venv/bin/python"
bucketline --version
case "$(bucketline --version)" in *"an unknown commit"*) echo "the wheel names no commit" >&2; exit 1 ;; esac

say "the quickstart"
bucketline quickstart --directory demo --batches 3 --events 200 | tail -1 | tee quickstart.txt
grep -q "and the table holds exactly these" quickstart.txt

say "a job on Kafka"
port="$("$broker_python" -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')"
(cd "$root" && exec env PATH="$(dirname "$broker_python"):$PATH" "$broker_python" -m tests.support.servers.broker "$port") > broker.txt 2>&1 &
broker=$!
for _ in $(seq 240); do grep -q "Kafka serves" broker.txt && break; kill -0 "$broker" || { cat broker.txt >&2; exit 1; }; sleep 1; done
jars="$(cd "$root" && "$broker_python" -c 'from tests.support.peers.jars import spark_kafka_jars; print(",".join(map(str, spark_kafka_jars("4.0"))))')"
cat > produce.py <<'P'
import sys
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

servers = {"bootstrap.servers": sys.argv[1]}
admin = AdminClient(servers)
if "orders" not in admin.list_topics(timeout=30).topics:
    admin.create_topics([NewTopic("orders", num_partitions=2, replication_factor=1)])["orders"].result()
producer = Producer(servers)
for key in range(int(sys.argv[2]), int(sys.argv[3])):
    producer.produce("orders", key=str(key), value='{"id": %d, "n": 1}' % key)
assert producer.flush(60) == 0
P
cat > kafka.yaml <<Y
table: $work/warehouse/shop.db/orders
source:
  format: kafka
  options: {kafka.bootstrap.servers: "127.0.0.1:$port", subscribe: orders, startingOffsets: earliest}
  decode: json
checkpoint: $work/checkpoint-kafka
trigger: availableNow
create: {schema: "id BIGINT NOT NULL, n BIGINT", primary-key: [id], options: {bucket: "2"}}
Y
export PYSPARK_SUBMIT_ARGS="--jars $jars --conf spark.ui.enabled=false --conf spark.log.level=WARN pyspark-shell"
python produce.py "127.0.0.1:$port" 0 100
bucketline ingest --conf-file kafka.yaml
python produce.py "127.0.0.1:$port" 100 150
bucketline ingest --conf-file kafka.yaml
[ "$(bucketline scan warehouse/shop.db/orders --format csv | tail -n +2 | wc -l)" -eq 150 ]
bucketline doctor --rows warehouse/shop.db/orders

say "a job of the release before ($before)"
mkdir old input
git -C "$root" archive --format=tar "$before" | tar -x -C old
rows() { for key in $(seq "$1" "$2"); do echo "{\"id\": $key, \"n\": $1}"; done > "input/$1.json"; }
cat > files.yaml <<Y
table: $work/warehouse/shop.db/files
source: {format: json, options: {path: $work/input, maxFilesPerTrigger: "1"}}
checkpoint: $work/checkpoint-files
trigger: availableNow
create: {schema: "id BIGINT NOT NULL, n BIGINT", primary-key: [id], options: {bucket: "2"}}
Y
export PYSPARK_SUBMIT_ARGS="--conf spark.ui.enabled=false --conf spark.log.level=WARN pyspark-shell"
rows 1 50; rows 51 80
(cd old && PYTHONPATH="$work/old/.ci/tree:$work/old" python -m bucketline.streaming ingest --conf-file ../files.yaml)
PYTHONPATH="$work/old/.ci/tree:$work/old" python -c 'import bucketline.state as s, os; assert "/old/" in os.path.realpath(s.__file__), s.__file__'
rows 81 90
bucketline ingest --conf-file files.yaml
[ "$(bucketline scan warehouse/shop.db/files --format csv | tail -n +2 | wc -l)" -eq 90 ]
[ "$(bucketline snapshots warehouse/shop.db/files --format csv | grep -c APPEND)" -eq 3 ]
bucketline doctor --rows warehouse/shop.db/files
say "proved: $(basename "$wheel")"
