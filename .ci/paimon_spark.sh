#!/usr/bin/env bash
# Compiles Paimon's connector for Spark 4.0 from a checkout of Paimon, for benches where Maven Central has no jar of it:
#   .ci/paimon_spark.sh CHECKOUT BUNDLE OUT
# CHECKOUT is the folder of Paimon's sources at the tag of a release, BUNDLE the paimon-bundle jar of that release, and
# OUT the jar to write: the connector and the bundle in one, as Paimon publishes it. Java 17, `mvn` (it brings ANTLR) and
# a Python with PySpark 4.0 (named by $PYTHON, else `python`) must be there. It takes two minutes of CPU.
set -euo pipefail
checkout="$(realpath "$1")/paimon-spark" bundle="$(realpath "$2")" out="$(realpath -m "$3")"
jars="$("${PYTHON:-python}" -c 'import os, pyspark; print(os.path.join(os.path.dirname(pyspark.__file__), "jars"))')"
antlr="$(ls "$jars" | sed -n 's/^antlr4-runtime-\(.*\)\.jar$/\1/p')"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir "$work/classes" "$work/parser"
mvn -q -B dependency:copy -Dartifact="org.antlr:antlr4:$antlr:jar:complete" -DoutputDirectory="$work"

modules=("$checkout/paimon-spark-common" "$checkout/paimon-spark4-common" "$checkout/paimon-spark-4.0")
grammar="org.apache.spark.sql.catalyst.parser.extensions"
(cd "${modules[0]}/src/main/antlr4/$grammar" &&
  java -jar "$work/antlr4-$antlr-complete.jar" -visitor -package "$grammar" -o "$work/parser/${grammar//.//}" ./*.g4)

# One module after another: the last one replaces a class of the first.
libraries="$work/classes:$bundle:$jars/*"
for module in "${modules[@]}"; do
  find "$module/src/main" -name '*.scala' >"$work/scala"
  find "$module/src/main" -name '*.java' >"$work/java"
  [ "$module" != "${modules[0]}" ] || find "$work/parser" -name '*.java' >>"$work/java"
  java -Xmx3g -Xss8m -cp "$jars/*" scala.tools.nsc.Main -nowarn -cp "$libraries" -d "$work/classes" \
    @"$work/scala" @"$work/java"
  [ ! -s "$work/java" ] || javac -nowarn -proc:none -cp "$libraries" -d "$work/classes" @"$work/java"
  [ ! -d "$module/src/main/resources" ] || cp -r "$module/src/main/resources/." "$work/classes/"
done

mkdir -p "$(dirname "$out")"
cp "$bundle" "$out"
(cd "$work/classes" && jar --update --file "$out" .)
