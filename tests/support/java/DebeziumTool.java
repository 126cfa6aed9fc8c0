import io.debezium.embedded.Connect;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.RecordChangeEvent;
import io.debezium.engine.format.ChangeEventFormat;
import java.io.InputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.Converter;

/**
 * Debezium's engines, one connector each: properties come in as the files that are named, records go out as lines.
 *
 * <p>A line is a form, the topic, the key and the value (base64, {@code -} for none), with tabs between. Each record is
 * written in all forms, so that one run of a database gives the same events in each of them; topics tell the engines apart. {@code avro.} begins the settings
 * of the converter of Avro; without one there is no Avro. It ends when its input does.
 */
public class DebeziumTool {
    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err); // what a library prints is no record
        ExecutorService threads = Executors.newCachedThreadPool();
        List<DebeziumEngine<?>> engines = new ArrayList<>();
        for (String name : args) {
            Properties settings = new Properties();
            try (InputStream file = new java.io.FileInputStream(name)) {
                settings.load(file);
            }
            Map<String, Converter[]> forms = forms(settings);
            DebeziumEngine<RecordChangeEvent<SourceRecord>> engine =
                    DebeziumEngine.create(ChangeEventFormat.of(Connect.class))
                            .using(settings)
                            .notifying(event -> forms.forEach((form, by) -> out.println(line(form, by, event.record()))))
                            .using((success, message, error) -> {
                                out.println("end\t" + (success ? "-" : message + (error == null ? "" : ": " + error)).replaceAll("\\s+", " "));
                                if (error != null) error.printStackTrace();
                            })
                            .build();
            engines.add(engine);
            threads.execute(engine);
        }
        while (System.in.read() >= 0) {} // until our caller closes it
        for (DebeziumEngine<?> engine : engines) engine.close();
        threads.shutdown();
    }

    /** The converters of key and value of each form. */
    private static Map<String, Converter[]> forms(Properties settings) throws Exception {
        Map<String, Converter[]> forms = new LinkedHashMap<>();
        String json = "org.apache.kafka.connect.json.JsonConverter";
        forms.put("json", pair(json, Map.of("schemas.enable", "false")));
        forms.put("json-schema", pair(json, Map.of("schemas.enable", "true")));
        Map<String, String> avro = new LinkedHashMap<>();
        for (String name : settings.stringPropertyNames())
            if (name.startsWith("avro.")) avro.put(name.substring(5), settings.getProperty(name));
        if (!avro.isEmpty()) forms.put("avro", pair(avro.remove("converter"), avro));
        return forms;
    }

    private static Converter[] pair(String name, Map<String, String> settings) throws Exception {
        Converter[] both = new Converter[2];
        for (int at = 0; at < 2; at++) {
            both[at] = (Converter) Class.forName(name).getDeclaredConstructor().newInstance();
            both[at].configure(settings, at == 0);
        }
        return both;
    }

    private static String line(String form, Converter[] by, SourceRecord record) {
        return String.join("\t", form, record.topic(),
                text(by[0], record.topic(), record.keySchema(), record.key()),
                text(by[1], record.topic(), record.valueSchema(), record.value()));
    }

    private static String text(Converter by, String topic, Schema schema, Object value) {
        byte[] bytes = value == null ? null : by.fromConnectData(topic, schema, value);
        return bytes == null ? "-" : new String(Base64.getEncoder().encode(bytes), StandardCharsets.US_ASCII);
    }
}
