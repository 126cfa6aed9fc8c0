import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.io.Writer;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.function.Consumer;
import org.apache.paimon.CoreOptions;
import org.apache.paimon.append.AppendCompactCoordinator;
import org.apache.paimon.append.AppendCompactTask;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.Decimal;
import org.apache.paimon.data.GenericArray;
import org.apache.paimon.data.GenericMap;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalArray;
import org.apache.paimon.data.InternalMap;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.data.Timestamp;
import org.apache.paimon.data.serializer.InternalRowSerializer;
import org.apache.paimon.disk.IOManager;
import org.apache.paimon.fs.FileIO;
import org.apache.paimon.fs.Path;
import org.apache.paimon.fs.local.LocalFileIO;
import org.apache.paimon.index.HashBucketAssigner;
import org.apache.paimon.manifest.BucketEntry;
import org.apache.paimon.mergetree.compact.aggregate.FieldHllSketchAgg;
import org.apache.paimon.mergetree.compact.aggregate.FieldRoaringBitmap64Agg;
import org.apache.paimon.mergetree.compact.aggregate.FieldThetaSketchAgg;
import org.apache.paimon.operation.BaseAppendFileStoreWrite;
import org.apache.paimon.options.MemorySize;
import org.apache.paimon.predicate.Predicate;
import org.apache.paimon.predicate.PredicateBuilder;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.schema.Schema;
import org.apache.paimon.schema.SchemaManager;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.core.JsonGenerator;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.core.JsonParser;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.JsonNodeFactory;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.paimon.shade.org.apache.datasketches.hll.HllSketch;
import org.apache.paimon.shade.org.apache.datasketches.memory.Memory;
import org.apache.paimon.shade.org.apache.datasketches.theta.Sketch;
import org.apache.paimon.shade.org.roaringbitmap.longlong.Roaring64Bitmap;
import org.apache.paimon.table.BucketMode;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.FileStoreTableFactory;
import org.apache.paimon.table.SpecialFields;
import org.apache.paimon.table.Table;
import org.apache.paimon.table.sink.BatchTableCommit;
import org.apache.paimon.table.sink.BatchWriteBuilder;
import org.apache.paimon.table.sink.CommitMessage;
import org.apache.paimon.table.sink.RowKeyExtractor;
import org.apache.paimon.table.sink.StreamTableCommit;
import org.apache.paimon.table.sink.StreamWriteBuilder;
import org.apache.paimon.table.sink.TableWriteImpl;
import org.apache.paimon.table.source.DataSplit;
import org.apache.paimon.table.source.EndOfScanException;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.table.source.Split;
import org.apache.paimon.table.source.StreamTableScan;
import org.apache.paimon.table.source.TableRead;
import org.apache.paimon.table.system.SystemTableLoader;
import org.apache.paimon.types.ArrayType;
import org.apache.paimon.types.DataField;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.DataTypeJsonParser;
import org.apache.paimon.types.DataTypes;
import org.apache.paimon.types.DecimalType;
import org.apache.paimon.types.MapType;
import org.apache.paimon.types.MultisetType;
import org.apache.paimon.types.RowKind;
import org.apache.paimon.types.RowType;
import org.apache.paimon.types.VarBinaryType;
import org.apache.paimon.utils.HllSketchUtil;
import org.apache.paimon.utils.RoaringBitmap64;
import org.apache.paimon.utils.SegmentsCache;
import org.apache.paimon.utils.ThetaSketch;

/**
 * Paimon Java as a program that tests talk to: tables of a local file system in, lines of JSON out.
 *
 * <p>{@code java -cp ... PaimonTool.java COMMAND '{"table": "/path", ...}'} runs one command; {@code ... serve} reads one JSON
 * object {@code {"command": ..., ...}} a line until stdin ends. An answer is any number of lines {@code {"row": {...}}} and then
 * exactly one {@code {"done": {...}}} or {@code {"error": class, "message": ..., "trace": ...}}. Only answers go to stdout.
 *
 * <p>Commands, each with {@code table} and optional {@code options} (dynamic table options):
 *
 * <ul>
 *   <li>{@code create}: {@code fields} [{name, type}], {@code partition_keys}, {@code primary_keys}; {@code options} are stored.
 *   <li>{@code read}: optional {@code equals} {column: value}, {@code row_kinds} (adds {@code _row_kind}), {@code buckets} (adds
 *       {@code __paimon_bucket}), {@code system} (a system table's name). {@code filter-read} is a read that demands {@code equals}.
 *   <li>{@code prune-check}: {@code conditions} [{column, operator, value or values}]; a row each: data files {@code planned} with
 *       the condition pushed down and {@code files} without, and rows {@code lost} and {@code extra} against testing every row.
 *   <li>{@code changes}: what a streaming read sees after snapshot {@code since}, in order, with {@code _row_kind} and the
 *       {@code _snapshot} that the change came with.
 *   <li>{@code files}: what {@code $files} shows.
 *   <li>{@code write}: {@code rows} (path of a JSON lines file; a row may carry {@code _row_kind} and {@code _bucket}), {@code mode}
 *       batch or stream, {@code commit_user}, {@code commit_identifier}, {@code wait_compaction}, {@code write_only}, {@code
 *       overwrite} {partition column: text}.
 *   <li>{@code compact}: {@code full}; every bucket of the table.
 * </ul>
 *
 * <p>{@code unite} has no table: {@code function} (rbm64, theta_sketch or hll_sketch) and {@code parts}, each a stored value in hex
 * or the numbers it is made of. The answer is the parts as Paimon unites them, one after the other: {@code bytes}, and how many
 * numbers they hold by {@code count}, of sketches an estimate.
 */
public class PaimonTool {
    private static final ObjectMapper JSON =
            new ObjectMapper()
                    .configure(JsonParser.Feature.ALLOW_NON_NUMERIC_NUMBERS, true)
                    .configure(JsonGenerator.Feature.QUOTE_NON_NUMERIC_NUMBERS, false);
    private static final JsonNodeFactory NODES = JsonNodeFactory.withExactBigDecimals(true);
    private static final FileIO FILE_IO = LocalFileIO.create();

    private final Writer out;

    private PaimonTool(Writer out) {
        this.out = out;
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // a library that prints must not break the protocol
        Writer out = new BufferedWriter(new OutputStreamWriter(answers, StandardCharsets.UTF_8));
        PaimonTool tool = new PaimonTool(out);
        boolean fine = true;
        if (args.length == 1 && args[0].equals("serve")) {
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                JsonNode request = JSON.readTree(line);
                tool.answer(request.path("command").asText(), request);
            }
        } else if (args.length == 2) {
            fine = tool.answer(args[0], JSON.readTree(args[1]));
        } else {
            System.err.println("usage: PaimonTool serve | PaimonTool COMMAND JSON");
            fine = false;
        }
        out.flush();
        System.exit(fine ? 0 : 1); // Paimon's pools would keep the JVM alive
    }

    private boolean answer(String command, JsonNode request) throws IOException {
        boolean fine = true;
        ObjectNode last = NODES.objectNode();
        try {
            last.set("done", run(command, request));
        } catch (Throwable problem) {
            StringWriter trace = new StringWriter();
            problem.printStackTrace(new PrintWriter(trace));
            last.put("error", problem.getClass().getName());
            last.put("message", String.valueOf(problem.getMessage()));
            last.put("trace", trace.toString());
            fine = false;
        }
        say(last);
        out.flush();
        return fine;
    }

    private ObjectNode run(String command, JsonNode request) throws Exception {
        switch (command) {
            case "ping":
                return NODES.objectNode().put("pid", ProcessHandle.current().pid());
            case "create":
                return create(request);
            case "read":
                return read(request);
            case "filter-read":
                if (!request.hasNonNull("equals")) {
                    throw new IllegalArgumentException("filter-read needs 'equals'");
                }
                return read(request);
            case "changes":
                return changes(request);
            case "prune-check":
                return pruneCheck(request);
            case "files":
                ((ObjectNode) request).put("system", "files");
                return read(request);
            case "write":
                return write(request);
            case "compact":
                return compact(request);
            case "unite":
                return unite(request);
            default:
                throw new IllegalArgumentException("unknown command: " + command);
        }
    }

    private void say(JsonNode line) throws IOException {
        out.write(JSON.writeValueAsString(line));
        out.write('\n');
    }

    // ---- commands ----

    private static FileStoreTable open(JsonNode request) {
        FileStoreTable table = FileStoreTableFactory.create(FILE_IO, new Path(request.required("table").asText()));
        Map<String, String> options = new HashMap<>(texts(request.path("options")));
        String branch = options.remove("branch");
        if (branch != null) {
            table = table.switchToBranch(branch); // as a catalog does for `t$branch_b`: with the branch's own schema
        }
        return options.isEmpty() ? table : table.copy(options);
    }

    private static ObjectNode create(JsonNode request) throws Exception {
        Schema.Builder schema = Schema.newBuilder();
        for (JsonNode field : request.required("fields")) {
            schema.column(field.required("name").asText(), DataTypeJsonParser.parseDataType(field.required("type")));
        }
        schema.partitionKeys(list(request.path("partition_keys")));
        schema.primaryKey(list(request.path("primary_keys")));
        schema.options(texts(request.path("options")));
        new SchemaManager(FILE_IO, new Path(request.required("table").asText())).createTable(schema.build());
        return NODES.objectNode();
    }

    private ObjectNode read(JsonNode request) throws Exception {
        FileStoreTable data = open(request);
        Table table = request.hasNonNull("system") ? system(request.get("system").asText(), data) : data;
        RowType type = table.rowType();
        ReadBuilder builder = table.newReadBuilder();
        if (request.hasNonNull("equals")) {
            builder.withFilter(equalTo(type, request.get("equals")));
        }
        boolean kinds = request.path("row_kinds").asBoolean(false);
        boolean buckets = request.path("buckets").asBoolean(false);
        long count = 0;
        java.nio.file.Path scratch = Files.createTempDirectory("paimon-tool");
        try (IOManager spill = IOManager.create(scratch.toString())) {
            TableRead read = builder.newRead().executeFilter().withIOManager(spill);
            for (Split split : builder.newScan().plan().splits()) {
                try (RecordReader<InternalRow> reader = read.createReader(split)) {
                    RecordReader.RecordIterator<InternalRow> batch;
                    while ((batch = reader.readBatch()) != null) {
                        InternalRow row;
                        while ((row = batch.next()) != null) {
                            ObjectNode text = rowText(row, type);
                            if (kinds) {
                                text.put("_row_kind", row.getRowKind().shortString());
                            }
                            if (buckets) {
                                text.put("__paimon_bucket", ((DataSplit) split).bucket());
                            }
                            ObjectNode line = NODES.objectNode();
                            line.set("row", text);
                            say(line);
                            count++;
                        }
                        batch.releaseBatch();
                    }
                }
            }
        } finally {
            remove(scratch);
        }
        return NODES.objectNode().put("rows", count);
    }

    private ObjectNode changes(JsonNode request) throws Exception {
        FileStoreTable table = open(request);
        long next = request.required("since").asLong() + 1;
        Long latest = table.snapshotManager().latestSnapshotId();
        long count = 0;
        ReadBuilder builder = table.newReadBuilder();
        StreamTableScan scan = builder.newStreamScan();
        scan.restore(next);
        while (latest != null && next <= latest) {
            for (Split split : scan.plan().splits()) {
                try (RecordReader<InternalRow> reader = builder.newRead().createReader(split)) {
                    RecordReader.RecordIterator<InternalRow> batch;
                    while ((batch = reader.readBatch()) != null) {
                        InternalRow row;
                        while ((row = batch.next()) != null) {
                            ObjectNode text = rowText(row, table.rowType());
                            text.put("_row_kind", row.getRowKind().shortString());
                            text.put("_snapshot", ((DataSplit) split).snapshotId());
                            ObjectNode line = NODES.objectNode();
                            line.set("row", text);
                            say(line);
                            count++;
                        }
                        batch.releaseBatch();
                    }
                }
            }
            next = scan.checkpoint();
        }
        return NODES.objectNode().put("rows", count);
    }

    /** Reads with each condition pushed down, and compares with testing every row of an unfiltered read. */
    private ObjectNode pruneCheck(JsonNode request) throws Exception {
        FileStoreTable table = open(request).copy(Map.of("scan.manifest.parallelism", "1"));
        // Each condition plans anew; the bytes of the manifests are the same for all of them.
        table.setManifestCache(SegmentsCache.create(MemorySize.ofMebiBytes(16), Long.MAX_VALUE));
        RowType type = table.rowType();
        InternalRowSerializer serializer = new InternalRowSerializer(type);
        List<InternalRow> all = new ArrayList<>();
        long files = scan(table, null, row -> all.add(serializer.copy(row)));
        for (JsonNode wanted : request.required("conditions")) {
            Predicate condition = condition(type, wanted);
            Map<String, Integer> balance = new HashMap<>();
            long expected = 0;
            for (InternalRow row : all) {
                if (condition.test(row)) {
                    expected++;
                    balance.merge(rowText(row, type).toString(), -1, Integer::sum);
                }
            }
            long planned = scan(table, condition, row -> balance.merge(rowText(row, type).toString(), 1, Integer::sum));
            ObjectNode found = NODES.objectNode().put("planned", planned).put("files", files).put("expected", expected);
            ArrayNode lost = found.putArray("lost");
            ArrayNode extra = found.putArray("extra");
            balance.forEach(
                    (row, count) -> {
                        if (count != 0) {
                            (count < 0 ? lost : extra).add(row);
                        }
                    });
            ObjectNode line = NODES.objectNode();
            line.set("row", found);
            say(line);
        }
        return NODES.objectNode().put("rows", all.size());
    }

    /** Passes on each row that satisfies the condition (null: each row); returns how many data files were planned. */
    private static long scan(FileStoreTable table, Predicate condition, Consumer<InternalRow> use) throws Exception {
        ReadBuilder builder = table.newReadBuilder();
        if (condition != null) {
            builder.withFilter(condition);
        }
        long files = 0;
        TableRead read = builder.newRead().executeFilter();
        for (Split split : builder.newScan().plan().splits()) {
            files += ((DataSplit) split).dataFiles().size();
            try (RecordReader<InternalRow> reader = read.createReader(split)) {
                reader.forEachRemaining(use::accept);
            }
        }
        return files;
    }

    private static Predicate condition(RowType type, JsonNode wanted) {
        PredicateBuilder predicates = new PredicateBuilder(type);
        int index = type.getFieldIndex(wanted.required("column").asText());
        DataType field = type.getTypeAt(index);
        Object value = parse(wanted.path("value"), field);
        String operator = wanted.required("operator").asText();
        switch (operator) {
            case "=":
                return predicates.equal(index, value);
            case "!=":
                return predicates.notEqual(index, value);
            case "<":
                return predicates.lessThan(index, value);
            case "<=":
                return predicates.lessOrEqual(index, value);
            case ">":
                return predicates.greaterThan(index, value);
            case ">=":
                return predicates.greaterOrEqual(index, value);
            case "is null":
                return predicates.isNull(index);
            case "is not null":
                return predicates.isNotNull(index);
            case "in":
            case "not in":
                List<Object> values = new ArrayList<>();
                wanted.required("values").forEach(one -> values.add(parse(one, field)));
                return operator.equals("in") ? predicates.in(index, values) : predicates.notIn(index, values);
            case "starts with":
                return predicates.startsWith(index, value);
            default:
                throw new IllegalArgumentException("unknown operator: " + operator);
        }
    }

    private static ObjectNode unite(JsonNode request) throws Exception {
        String function = request.required("function").asText();
        byte[] united = null;
        for (JsonNode part : request.required("parts")) {
            byte[] value = part.isTextual() ? HexFormat.of().parseHex(part.asText()) : stored(function, part);
            united = united == null ? value : united(function, united, value);
        }
        return NODES.objectNode().put("bytes", HexFormat.of().formatHex(united)).put("count", count(function, united));
    }

    private static byte[] stored(String function, JsonNode numbers) throws IOException {
        long[] values = new long[numbers.size()];
        for (int i = 0; i < values.length; i++) {
            values[i] = whole(numbers.get(i), Long.MIN_VALUE, Long.MAX_VALUE);
        }
        switch (function) {
            case "rbm64":
                return RoaringBitmap64.bitmapOf(values).serialize();
            case "theta_sketch":
                return ThetaSketch.sketchOf(Arrays.stream(values).mapToInt(Math::toIntExact).toArray());
            case "hll_sketch":
                return HllSketchUtil.sketchOf(Arrays.stream(values).mapToInt(Math::toIntExact).toArray());
            default:
                throw new IllegalArgumentException("unknown function: " + function);
        }
    }

    private static byte[] united(String function, byte[] held, byte[] value) {
        VarBinaryType type = new VarBinaryType(VarBinaryType.MAX_LENGTH);
        switch (function) {
            case "rbm64":
                return (byte[]) new FieldRoaringBitmap64Agg(function, type).agg(held, value);
            case "theta_sketch":
                return (byte[]) new FieldThetaSketchAgg(function, type).agg(held, value);
            default:
                return (byte[]) new FieldHllSketchAgg(function, type).agg(held, value);
        }
    }

    private static double count(String function, byte[] value) throws IOException {
        switch (function) {
            case "rbm64":
                Roaring64Bitmap bitmap = new Roaring64Bitmap();
                bitmap.deserialize(new DataInputStream(new ByteArrayInputStream(value)));
                return bitmap.getLongCardinality();
            case "theta_sketch":
                return Sketch.wrap(Memory.wrap(value)).getEstimate();
            default:
                return HllSketch.heapify(value).getEstimate();
        }
    }

    private static Table system(String name, FileStoreTable table) {
        Table found = SystemTableLoader.load(name, table);
        if (found == null) {
            throw new IllegalArgumentException("no system table called " + name);
        }
        return found;
    }

    private static Predicate equalTo(RowType type, JsonNode wanted) {
        PredicateBuilder predicates = new PredicateBuilder(type);
        List<Predicate> all = new ArrayList<>();
        wanted.fields()
                .forEachRemaining(
                        entry -> {
                            int index = predicates.indexOf(entry.getKey());
                            if (index < 0) {
                                throw new IllegalArgumentException("no column called " + entry.getKey());
                            }
                            Object value = parse(entry.getValue(), type.getTypeAt(index));
                            all.add(value == null ? predicates.isNull(index) : predicates.equal(index, value));
                        });
        return PredicateBuilder.and(all);
    }

    private static ObjectNode write(JsonNode request) throws Exception {
        FileStoreTable table = open(request);
        if (request.hasNonNull("write_only")) {
            table = table.copy(Map.of(CoreOptions.WRITE_ONLY.key(), request.get("write_only").asText()));
        }
        String user = request.path("commit_user").asText(UUID.randomUUID().toString());
        String mode = request.path("mode").asText("batch");
        long identifier = request.path("commit_identifier").asLong(BatchWriteBuilder.COMMIT_IDENTIFIER);
        java.nio.file.Path scratch = Files.createTempDirectory("paimon-tool");
        long count;
        try (IOManager spill = IOManager.create(scratch.toString())) {
            if (mode.equals("stream")) {
                StreamWriteBuilder builder = table.newStreamWriteBuilder().withCommitUser(user);
                try (TableWriteImpl<?> write = (TableWriteImpl<?>) builder.newWrite();
                        StreamTableCommit commit = builder.newCommit()) {
                    write.withIOManager(spill);
                    count = writeRows(table, write, user, identifier, request);
                    boolean wait = request.path("wait_compaction").asBoolean(true);
                    commit.commit(identifier, write.prepareCommit(wait, identifier));
                }
            } else if (mode.equals("batch")) {
                BatchWriteBuilder builder = table.newBatchWriteBuilder();
                if (request.hasNonNull("overwrite")) {
                    builder.withOverwrite(texts(request.get("overwrite")));
                }
                try (TableWriteImpl<?> write = (TableWriteImpl<?>) builder.newWrite();
                        BatchTableCommit commit = builder.newCommit()) {
                    write.withIOManager(spill);
                    count = writeRows(table, write, user, identifier, request);
                    commit.commit(write.prepareCommit());
                }
            } else {
                throw new IllegalArgumentException("mode must be batch or stream, not " + mode);
            }
        } finally {
            remove(scratch);
        }
        return latest(table).put("rows", count);
    }

    private static long writeRows(
            FileStoreTable table, TableWriteImpl<?> write, String user, long identifier, JsonNode request) throws Exception {
        RowType type = table.rowType();
        RowKeyExtractor keys = table.createRowKeyExtractor();
        HashBucketAssigner assigner = table.bucketMode() == BucketMode.HASH_DYNAMIC ? assigner(table, user) : null;
        long count = 0;
        try (BufferedReader in = Files.newBufferedReader(Paths.get(request.required("rows").asText()))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                JsonNode text = JSON.readTree(line);
                GenericRow row = parseRow(text, type, true);
                if (text.hasNonNull("_row_kind")) {
                    row.setRowKind(RowKind.fromShortString(text.get("_row_kind").asText()));
                }
                if (text.hasNonNull("_bucket")) {
                    write.write(row, text.get("_bucket").asInt());
                } else if (assigner != null) {
                    keys.setRecord(row);
                    write.write(row, assigner.assign(keys.partition(), keys.trimmedPrimaryKey().hashCode()));
                } else {
                    write.write(row);
                }
                count++;
            }
        }
        if (assigner != null) {
            assigner.prepareCommit(identifier);
        }
        return count;
    }

    private static HashBucketAssigner assigner(FileStoreTable table, String user) {
        CoreOptions options = table.coreOptions();
        return new HashBucketAssigner(
                table.snapshotManager(),
                user,
                table.store().newIndexFileHandler(),
                1,
                1,
                0,
                options.dynamicBucketTargetRowNum(),
                options.dynamicBucketMaxBuckets());
    }

    private static ObjectNode compact(JsonNode request) throws Exception {
        FileStoreTable table = open(request).copy(Map.of(CoreOptions.WRITE_ONLY.key(), "false"));
        boolean full = request.path("full").asBoolean(true);
        java.nio.file.Path scratch = Files.createTempDirectory("paimon-tool");
        BatchWriteBuilder builder = table.newBatchWriteBuilder();
        try (IOManager spill = IOManager.create(scratch.toString());
                TableWriteImpl<?> write = (TableWriteImpl<?>) builder.newWrite();
                BatchTableCommit commit = builder.newCommit()) {
            write.withIOManager(spill);
            if (table.bucketMode() == BucketMode.BUCKET_UNAWARE) {
                List<CommitMessage> messages = new ArrayList<>();
                BaseAppendFileStoreWrite files = (BaseAppendFileStoreWrite) write.getWrite();
                if (table.coreOptions().rowTrackingEnabled()) {
                    files.withWriteType(SpecialFields.rowTypeWithRowTracking(table.rowType())); // as Spark's procedure
                }
                try {
                    for (AppendCompactTask task : new AppendCompactCoordinator(table, false).run()) {
                        messages.add(task.doCompact(table, files));
                    }
                } catch (EndOfScanException end) {
                    // Paimon's way to say that there is no file to look at.
                }
                commit.commit(messages);
            } else {
                for (BucketEntry entry : table.newSnapshotReader().bucketEntries()) {
                    if (entry.bucket() >= 0) { // files of a postpone bucket have no levels to compact
                        BinaryRow partition = entry.partition();
                        write.compact(partition, entry.bucket(), full);
                    }
                }
                commit.commit(write.prepareCommit());
            }
        } finally {
            remove(scratch);
        }
        return latest(table);
    }

    private static ObjectNode latest(FileStoreTable table) {
        return NODES.objectNode().put("snapshot_id", table.snapshotManager().latestSnapshotId());
    }

    private static void remove(java.nio.file.Path folder) throws IOException {
        if (!Files.exists(folder)) {
            return;
        }
        try (var found = Files.walk(folder)) {
            found.sorted((a, b) -> b.compareTo(a)).forEach(path -> path.toFile().delete());
        }
    }

    // ---- values as text, text as values ----

    private static ObjectNode rowText(InternalRow row, RowType type) {
        ObjectNode text = NODES.objectNode();
        for (int i = 0; i < type.getFieldCount(); i++) {
            DataField field = type.getFields().get(i);
            text.set(field.name(), text(InternalRow.createFieldGetter(field.type(), i).getFieldOrNull(row), field.type()));
        }
        return text;
    }

    private static JsonNode text(Object value, DataType type) {
        if (value == null) {
            return NODES.nullNode();
        }
        switch (type.getTypeRoot()) {
            case BOOLEAN:
                return NODES.booleanNode((Boolean) value);
            case TINYINT:
            case SMALLINT:
            case INTEGER:
            case BIGINT:
                return NODES.numberNode(((Number) value).longValue());
            case FLOAT:
            case DOUBLE:
                double number = ((Number) value).doubleValue();
                return Double.isNaN(number) ? NODES.textNode("NaN") : NODES.numberNode(number);
            case DECIMAL:
                return NODES.textNode(((Decimal) value).toBigDecimal().toString());
            case CHAR:
            case VARCHAR:
                return NODES.textNode(value.toString());
            case BINARY:
            case VARBINARY:
                return NODES.textNode(HexFormat.of().formatHex((byte[]) value));
            case DATE:
                return NODES.textNode(LocalDate.ofEpochDay((Integer) value).toString());
            case TIME_WITHOUT_TIME_ZONE:
                return NODES.textNode(clock(LocalTime.ofNanoOfDay((Integer) value * 1_000_000L)));
            case TIMESTAMP_WITHOUT_TIME_ZONE:
            case TIMESTAMP_WITH_LOCAL_TIME_ZONE:
                LocalDateTime when = ((Timestamp) value).toLocalDateTime();
                return NODES.textNode(when.toLocalDate() + "T" + clock(when.toLocalTime()));
            case ARRAY:
                return arrayText((InternalArray) value, ((ArrayType) type).getElementType());
            case MAP:
                MapType map = (MapType) type;
                return mapText((InternalMap) value, map.getKeyType(), map.getValueType());
            case MULTISET:
                return mapText((InternalMap) value, ((MultisetType) type).getElementType(), DataTypes.INT());
            case ROW:
                return rowText((InternalRow) value, (RowType) type);
            default:
                throw new UnsupportedOperationException("no text form for " + type);
        }
    }

    private static ArrayNode arrayText(InternalArray array, DataType elements) {
        ArrayNode text = NODES.arrayNode();
        InternalArray.ElementGetter getter = InternalArray.createElementGetter(elements);
        for (int i = 0; i < array.size(); i++) {
            text.add(text(getter.getElementOrNull(array, i), elements));
        }
        return text;
    }

    private static ArrayNode mapText(InternalMap map, DataType keys, DataType values) {
        ArrayNode keyTexts = arrayText(map.keyArray(), keys);
        ArrayNode valueTexts = arrayText(map.valueArray(), values);
        ArrayNode text = NODES.arrayNode();
        for (int i = 0; i < keyTexts.size(); i++) {
            text.add(NODES.arrayNode().add(keyTexts.get(i)).add(valueTexts.get(i)));
        }
        return text;
    }

    /** As Python's isoformat: no fraction when it is zero, else six digits; nine when microseconds do not hold it. */
    private static String clock(LocalTime time) {
        String text = String.format("%02d:%02d:%02d", time.getHour(), time.getMinute(), time.getSecond());
        int nanos = time.getNano();
        if (nanos == 0) {
            return text;
        }
        return nanos % 1000 == 0 ? text + String.format(".%06d", nanos / 1000) : text + String.format(".%09d", nanos);
    }

    private static GenericRow parseRow(JsonNode text, RowType type, boolean marked) {
        text.fieldNames()
                .forEachRemaining(
                        name -> {
                            if (!type.containsField(name) && !(marked && (name.equals("_row_kind") || name.equals("_bucket")))) {
                                throw new IllegalArgumentException("no column called " + name);
                            }
                        });
        GenericRow row = new GenericRow(type.getFieldCount());
        for (int i = 0; i < type.getFieldCount(); i++) {
            DataField field = type.getFields().get(i);
            row.setField(i, parse(text.path(field.name()), field.type()));
        }
        return row;
    }

    private static Object parse(JsonNode text, DataType type) {
        if (text.isNull() || text.isMissingNode()) {
            return null;
        }
        switch (type.getTypeRoot()) {
            case BOOLEAN:
                return text.asBoolean();
            case TINYINT:
                return (byte) whole(text, Byte.MIN_VALUE, Byte.MAX_VALUE);
            case SMALLINT:
                return (short) whole(text, Short.MIN_VALUE, Short.MAX_VALUE);
            case INTEGER:
                return (int) whole(text, Integer.MIN_VALUE, Integer.MAX_VALUE);
            case BIGINT:
                return whole(text, Long.MIN_VALUE, Long.MAX_VALUE);
            case FLOAT:
                return text.isTextual() ? Float.parseFloat(text.asText()) : (float) text.doubleValue();
            case DOUBLE:
                return text.isTextual() ? Double.parseDouble(text.asText()) : text.doubleValue();
            case DECIMAL:
                DecimalType decimal = (DecimalType) type;
                BigDecimal number = new BigDecimal(text.asText()).setScale(decimal.getScale());
                return Decimal.fromBigDecimal(number, decimal.getPrecision(), decimal.getScale());
            case CHAR:
            case VARCHAR:
                return BinaryString.fromString(text.asText());
            case BINARY:
            case VARBINARY:
                return HexFormat.of().parseHex(text.asText());
            case DATE:
                return (int) LocalDate.parse(text.asText()).toEpochDay();
            case TIME_WITHOUT_TIME_ZONE:
                return (int) (LocalTime.parse(text.asText()).toNanoOfDay() / 1_000_000L);
            case TIMESTAMP_WITHOUT_TIME_ZONE:
            case TIMESTAMP_WITH_LOCAL_TIME_ZONE:
                return Timestamp.fromLocalDateTime(LocalDateTime.parse(text.asText()));
            case ARRAY:
                return parseArray(text, ((ArrayType) type).getElementType());
            case MAP:
                MapType map = (MapType) type;
                return parseMap(text, map.getKeyType(), map.getValueType());
            case MULTISET:
                return parseMap(text, ((MultisetType) type).getElementType(), DataTypes.INT());
            case ROW:
                return parseRow(text, (RowType) type, false);
            default:
                throw new UnsupportedOperationException("no text form for " + type);
        }
    }

    private static long whole(JsonNode text, long lowest, long highest) {
        long number = text.longValue();
        if (!text.isIntegralNumber() || !text.canConvertToLong() || number < lowest || number > highest) {
            throw new IllegalArgumentException("not a whole number in range: " + text);
        }
        return number;
    }

    private static GenericArray parseArray(JsonNode text, DataType elements) {
        Object[] values = new Object[text.size()];
        for (int i = 0; i < values.length; i++) {
            values[i] = parse(text.get(i), elements);
        }
        return new GenericArray(values);
    }

    private static GenericMap parseMap(JsonNode text, DataType keys, DataType values) {
        Map<Object, Object> entries = new LinkedHashMap<>();
        for (JsonNode entry : text) {
            entries.put(parse(entry.get(0), keys), parse(entry.get(1), values));
        }
        return new GenericMap(entries);
    }

    private static Map<String, String> texts(JsonNode object) {
        Map<String, String> map = new HashMap<>();
        object.fields().forEachRemaining(entry -> map.put(entry.getKey(), entry.getValue().asText()));
        return map;
    }

    private static List<String> list(JsonNode array) {
        List<String> found = new ArrayList<>();
        array.forEach(node -> found.add(node.asText()));
        return found;
    }
}
