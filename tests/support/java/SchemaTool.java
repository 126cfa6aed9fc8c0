import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.catalog.CatalogFactory;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.Decimal;
import org.apache.paimon.data.GenericArray;
import org.apache.paimon.data.GenericMap;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.data.Timestamp;
import org.apache.paimon.disk.IOManager;
import org.apache.paimon.fs.Path;
import org.apache.paimon.fs.local.LocalFileIO;
import org.apache.paimon.options.Options;
import org.apache.paimon.schema.Schema;
import org.apache.paimon.schema.SchemaChange;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.paimon.table.BucketMode;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.FileStoreTableFactory;
import org.apache.paimon.table.sink.BatchTableCommit;
import org.apache.paimon.table.sink.BatchWriteBuilder;
import org.apache.paimon.table.sink.TableWriteImpl;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.types.ArrayType;
import org.apache.paimon.types.DataField;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.DataTypeJsonParser;
import org.apache.paimon.types.DecimalType;
import org.apache.paimon.types.MapType;
import org.apache.paimon.types.MultisetType;
import org.apache.paimon.types.RowType;

/**
 * Paimon Java as a judge of schemas: lines of JSON in, one line of JSON out for each.
 *
 * <p>{@code create} makes a table of a catalog ({@code warehouse}, {@code table}, {@code fields}, {@code primary_keys}, {@code
 * partition_keys}, {@code options}), {@code alter} changes it ({@code changes}, each with a {@code kind}), {@code use} opens the
 * table at {@code path}, commits a row and reads it, {@code branch} makes an empty branch. An answer is {@code {"done": {}}}, or
 * {@code {"done": {"stage": ..., "message": ...}}} for what Paimon refuses; {@code {"error": ...}} is a fault of this program.
 */
public class SchemaTool {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, Catalog> CATALOGS = new HashMap<>();

    private static final Set<BucketMode> DYNAMIC = Set.of(BucketMode.HASH_DYNAMIC, BucketMode.KEY_DYNAMIC);

    private static String stage;

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("done", judged(JSON.readTree(line)));
            } catch (Throwable problem) {
                StringWriter trace = new StringWriter();
                problem.printStackTrace(new PrintWriter(trace));
                answer.put("error", problem.getClass().getName());
                answer.put("message", String.valueOf(problem.getMessage()));
                answer.put("trace", trace.toString());
            }
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
        System.exit(0);
    }

    private static ObjectNode judged(JsonNode request) {
        ObjectNode done = JSON.createObjectNode();
        stage = request.get("command").asText();
        try {
            switch (stage) {
                case "create":
                    create(request);
                    break;
                case "alter":
                    alter(request);
                    break;
                case "branch":
                    Identifier name = Identifier.create("db", request.get("table").asText());
                    catalog(request).createBranch(name, request.get("branch").asText(), null);
                    break;
                case "use":
                    use(request.get("path").asText());
                    break;
                default:
                    throw new IllegalArgumentException(request.toString());
            }
        } catch (Throwable problem) {
            done.put("stage", stage);
            StringBuilder message = new StringBuilder();
            for (Throwable cause = problem; cause != null; cause = cause.getCause()) {
                message.append(cause.getClass().getSimpleName()).append(": ").append(cause.getMessage()).append(" / ");
            }
            done.put("message", message.toString());
        }
        return done;
    }

    private static Catalog catalog(JsonNode request) throws Exception {
        String warehouse = request.get("warehouse").asText();
        if (!CATALOGS.containsKey(warehouse)) {
            Options options = Options.fromMap(Map.of("warehouse", warehouse));
            Catalog made = CatalogFactory.createCatalog(CatalogContext.create(options));
            made.createDatabase("db", true);
            CATALOGS.put(warehouse, made);
        }
        return CATALOGS.get(warehouse);
    }

    private static void create(JsonNode request) throws Exception {
        Schema.Builder schema = Schema.newBuilder();
        for (JsonNode field : request.get("fields")) {
            schema.column(field.get("name").asText(), DataTypeJsonParser.parseDataType(field.get("type")));
        }
        schema.partitionKeys(list(request.get("partition_keys")));
        schema.primaryKey(list(request.get("primary_keys")));
        schema.options(texts(request.get("options")));
        catalog(request).createTable(Identifier.create("db", request.get("table").asText()), schema.build(), false);
    }

    private static void alter(JsonNode request) throws Exception {
        List<SchemaChange> changes = new ArrayList<>();
        for (JsonNode change : request.get("changes")) {
            changes.add(change(change));
        }
        catalog(request).alterTable(Identifier.create("db", request.get("table").asText()), changes, false);
    }

    private static SchemaChange change(JsonNode change) {
        String name = change.path("name").asText();
        switch (change.get("kind").asText()) {
            case "add":
                return SchemaChange.addColumn(name, DataTypeJsonParser.parseDataType(change.get("type")));
            case "drop":
                return SchemaChange.dropColumn(name);
            case "rename":
                return SchemaChange.renameColumn(name, change.get("to").asText());
            case "type":
                return SchemaChange.updateColumnType(name, DataTypeJsonParser.parseDataType(change.get("type")), true);
            case "nullability":
                return SchemaChange.updateColumnNullability(name, change.get("nullable").asBoolean());
            case "set":
                return SchemaChange.setOption(name, change.get("value").asText());
            case "unset":
                return SchemaChange.removeOption(name);
            default:
                throw new IllegalArgumentException(change.toString());
        }
    }

    private static void use(String path) throws Exception {
        stage = "open";
        FileStoreTable table = FileStoreTableFactory.create(LocalFileIO.create(), new Path(path));
        java.nio.file.Path scratch = java.nio.file.Files.createTempDirectory("schema-tool");
        try (IOManager spill = IOManager.create(scratch.toString())) {
            BatchWriteBuilder builder = table.newBatchWriteBuilder();
            stage = "write";
            try (TableWriteImpl<?> write = (TableWriteImpl<?>) builder.newWrite(); BatchTableCommit commit = builder.newCommit()) {
                write.withIOManager(spill);
                GenericRow row = row(table.rowType(), table.coreOptions().rowkindField().orElse(null));
                if (DYNAMIC.contains(table.bucketMode())) {
                    write.write(row, 0);
                } else {
                    write.write(row);
                }
                commit.commit(write.prepareCommit());
            }
            stage = "read";
            ReadBuilder reading = table.newReadBuilder();
            reading.newRead()
                    .withIOManager(spill)
                    .createReader(reading.newScan().plan())
                    .forEachRemaining((InternalRow row) -> row.getFieldCount());
        } finally {
            java.nio.file.Files.deleteIfExists(scratch);
        }
    }

    private static GenericRow row(RowType type, String rowKind) {
        GenericRow row = new GenericRow(type.getFieldCount());
        for (int i = 0; i < type.getFieldCount(); i++) {
            DataField field = type.getFields().get(i);
            row.setField(i, field.name().equals(rowKind) ? BinaryString.fromString("+I") : value(field.type()));
        }
        return row;
    }

    private static Object value(DataType type) {
        switch (type.getTypeRoot()) {
            case BOOLEAN:
                return true;
            case TINYINT:
                return (byte) 1;
            case SMALLINT:
                return (short) 1;
            case INTEGER:
            case DATE:
            case TIME_WITHOUT_TIME_ZONE:
                return 1;
            case BIGINT:
                return 1L;
            case FLOAT:
                return 1f;
            case DOUBLE:
                return 1d;
            case DECIMAL:
                return Decimal.fromBigDecimal(BigDecimal.ONE, ((DecimalType) type).getPrecision(), ((DecimalType) type).getScale());
            case CHAR:
            case VARCHAR:
                return BinaryString.fromString("1");
            case BINARY:
            case VARBINARY:
                return new byte[] {1};
            case TIMESTAMP_WITHOUT_TIME_ZONE:
            case TIMESTAMP_WITH_LOCAL_TIME_ZONE:
                return Timestamp.fromEpochMillis(1_700_000_000_000L);
            case ARRAY:
                return new GenericArray(new Object[] {value(((ArrayType) type).getElementType())});
            case MAP:
                MapType map = (MapType) type;
                return new GenericMap(Map.of(value(map.getKeyType()), value(map.getValueType())));
            case MULTISET:
                return new GenericMap(Map.of(value(((MultisetType) type).getElementType()), 1));
            case ROW:
                return row((RowType) type, null);
            default:
                throw new IllegalArgumentException(type.toString());
        }
    }

    private static List<String> list(JsonNode names) {
        List<String> found = new ArrayList<>();
        names.forEach(name -> found.add(name.asText()));
        return found;
    }

    private static Map<String, String> texts(JsonNode object) {
        Map<String, String> found = new HashMap<>();
        object.fields().forEachRemaining(field -> found.put(field.getKey(), field.getValue().asText()));
        return found;
    }
}
