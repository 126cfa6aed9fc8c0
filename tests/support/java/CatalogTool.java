import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.catalog.CatalogFactory;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.options.Options;
import org.apache.paimon.schema.Schema;
import org.apache.paimon.schema.SchemaChange;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.Table;
import org.apache.paimon.table.sink.BatchTableCommit;
import org.apache.paimon.table.sink.BatchTableWrite;
import org.apache.paimon.table.sink.BatchWriteBuilder;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.types.DataTypes;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.Constructor;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/** Paimon's catalogs over standard input and output: one JSON command a line, one answer a line. */
public class CatalogTool {

    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static Catalog catalog;

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), true, "UTF-8");
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = MAPPER.createObjectNode();
            try {
                answer.set("done", run(MAPPER.readTree(line)));
            } catch (Throwable e) {
                StringWriter trace = new StringWriter();
                e.printStackTrace(new PrintWriter(trace));
                answer.put("error", e.getClass().getSimpleName());
                answer.put("message", String.valueOf(e.getMessage()));
                answer.put("trace", trace.toString());
            }
            out.println(MAPPER.writeValueAsString(answer));
        }
        System.exit(0);
    }

    private static ObjectNode run(JsonNode request) throws Exception {
        ObjectNode done = MAPPER.createObjectNode();
        Identifier name = request.has("table") ? Identifier.fromString(request.get("table").asText()) : null;
        switch (request.get("command").asText()) {
            case "serve-rest":
                done.put("uri", serve(request.get("folder").asText(), request.get("token").asText()));
                break;
            case "lose-answer":
                Class.forName("org.apache.paimon.rest.RESTCatalogServer").getField("commitSuccessThrowException").setBoolean(null, true);
                break;
            case "open":
                catalog = CatalogFactory.createCatalog(CatalogContext.create(Options.fromMap(texts(request.get("options")))));
                break;
            case "databases":
                catalog.listDatabases().forEach(done.putArray("names")::add);
                break;
            case "tables":
                catalog.listTables(request.get("database").asText()).forEach(done.putArray("names")::add);
                break;
            case "create-database":
                catalog.createDatabase(request.get("database").asText(), false);
                break;
            case "drop-database":
                catalog.dropDatabase(request.get("database").asText(), false, true);
                break;
            case "create":
                Schema.Builder schema =
                        Schema.newBuilder().column("id", DataTypes.BIGINT().notNull()).column("v", DataTypes.STRING());
                catalog.createTable(name, schema.primaryKey("id").options(texts(request.get("options"))).build(), false);
                break;
            case "add-column":
                catalog.alterTable(name, SchemaChange.addColumn(request.get("column").asText(), DataTypes.INT()), false);
                break;
            case "rename":
                catalog.renameTable(name, Identifier.fromString(request.get("to").asText()), false);
                break;
            case "drop":
                catalog.dropTable(name, false);
                break;
            case "write":
                write(catalog.getTable(name), request.get("rows"));
                break;
            case "read":
                read(catalog.getTable(name), done.putArray("rows"));
                break;
            case "latest":
                done.put("snapshot", ((FileStoreTable) catalog.getTable(name)).snapshotManager().latestSnapshotId());
                break;
            case "columns":
                catalog.getTable(name).rowType().getFieldNames().forEach(done.putArray("names")::add);
                break;
            case "tags":
                ((FileStoreTable) catalog.getTable(name)).tagManager().allTagNames().forEach(done.putArray("names")::add);
                break;
            case "branches":
                catalog.listBranches(name).forEach(done.putArray("names")::add);
                break;
            case "create-branch":
                JsonNode tag = request.get("tag");
                catalog.createBranch(name, request.get("branch").asText(), tag == null ? null : tag.asText());
                break;
            case "drop-branch":
                catalog.dropBranch(name, request.get("branch").asText());
                break;
            case "fast-forward":
                catalog.fastForward(name, request.get("branch").asText());
                break;
            default:
                throw new IllegalArgumentException(request.toString());
        }
        return done;
    }

    /** Starts the REST server of Paimon's own tests, which one JVM has at most one of; its address. */
    private static String serve(String folder, String token) throws Exception {
        Map<String, String> defaults = new HashMap<>();
        defaults.put("prefix", "paimon");
        defaults.put("table-default.bucket", "1");
        Class<?> response = Class.forName("org.apache.paimon.rest.responses.ConfigResponse");
        Object config = response.getConstructor(Map.class, Map.class).newInstance(defaults, new HashMap<>());
        Object login = Class.forName("org.apache.paimon.rest.auth.BearTokenAuthProvider").getConstructor(String.class).newInstance(token);
        Class<?> kind = Class.forName("org.apache.paimon.rest.RESTCatalogServer");
        Constructor<?> made = kind.getConstructors()[0];
        Object server = made.newInstance(folder, login, config, "lake");
        kind.getMethod("start").invoke(server);
        return (String) kind.getMethod("getUrl").invoke(server);
    }

    private static void write(Table table, JsonNode rows) throws Exception {
        BatchWriteBuilder builder = table.newBatchWriteBuilder();
        try (BatchTableWrite write = builder.newWrite(); BatchTableCommit commit = builder.newCommit()) {
            for (JsonNode row : rows) {
                GenericRow found = new GenericRow(table.rowType().getFieldCount());
                found.setField(0, row.get(0).asLong());
                found.setField(1, BinaryString.fromString(row.get(1).asText()));
                write.write(found, 0);
            }
            commit.commit(write.prepareCommit());
        }
    }

    private static void read(Table table, ArrayNode rows) throws Exception {
        ReadBuilder builder = table.newReadBuilder();
        builder.newRead()
                .createReader(builder.newScan().plan())
                .forEachRemaining(
                        row -> rows.addArray().add(row.getLong(0)).add(String.valueOf(row.getString(1))));
    }

    private static Map<String, String> texts(JsonNode object) {
        Map<String, String> found = new HashMap<>();
        if (object != null) {
            object.fields().forEachRemaining(field -> found.put(field.getKey(), field.getValue().asText()));
        }
        return found;
    }
}
