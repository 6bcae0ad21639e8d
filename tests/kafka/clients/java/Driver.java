// Does with Kafka's own clients what lines on standard input say: see clients/remote.py.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.utils.AppInfoParser;

public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long PATIENCE_MS = 60_000;
    private final Map<String, Member> members = new HashMap<>();
    private final Map<String, KafkaProducer<String, String>> senders = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        var driver = new Driver();
        var in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<String, Object> answer = new HashMap<>();
            try {
                answer.put("ok", driver.perform(JSON.readTree(line)));
            } catch (Exception | NoClassDefFoundError error) {
                Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
                answer.put("error", cause.toString());
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
        System.exit(0);
    }

    private Object perform(JsonNode ask) throws Exception {
        return switch (ask.get("do").asText()) {
            case "version" -> AppInfoParser.getVersion();
            case "produce" -> produce(ask);
            case "read" -> read(ask);
            case "join" -> members.put(text(ask, "member"), new Member(ask));
            case "look" -> members.get(text(ask, "member")).look();
            case "commit" -> members.get(text(ask, "member")).commit(partition(ask), ask.get("offset").asLong());
            case "leave" -> members.remove(text(ask, "member")).leave();
            case "open" -> {
                senders.put(text(ask, "sender"), producer(ask.get("at"), Map.of()));
                yield null;
            }
            case "send" -> {
                var record = new ProducerRecord<String, String>(text(ask, "topic"), text(ask, "value"));
                senders.get(text(ask, "sender")).send(record).get();
                yield null;
            }
            case "shut" -> {
                senders.remove(text(ask, "sender")).close();
                yield null;
            }
            default -> administer(ask);
        };
    }

    static KafkaProducer<String, String> producer(JsonNode at, Map<String, Object> more) {
        Map<String, Object> settings = Settings.of(at);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("linger.ms", 20);
        settings.putAll(more);
        return new KafkaProducer<>(settings);
    }

    static KafkaConsumer<String, String> consumer(JsonNode at, Map<String, Object> more) {
        Map<String, Object> settings = Settings.of(at);
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "earliest");
        settings.putAll(more);
        return new KafkaConsumer<>(settings);
    }

    private Object produce(JsonNode ask) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("compression.type", ask.path("codec").asText("none"));
        settings.put("acks", ask.path("acks").asText("-1"));
        settings.put("enable.idempotence", ask.path("idempotent").asBoolean(false));
        try (var producer = producer(ask.get("at"), settings)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode record : ask.get("records")) {
                sent.add(producer.send(record(text(ask, "topic"), record)));
            }
            producer.flush();
            for (var one : sent) {
                one.get();
            }
        }
        return null;
    }

    private static ProducerRecord<String, String> record(String topic, JsonNode from) {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : from.path("headers")) {
            headers.add(new RecordHeader(header.get(0).asText(), header.get(1).asText().getBytes()));
        }
        Long time = from.has("time") ? from.get("time").asLong() : null;
        return new ProducerRecord<>(
            topic, from.path("partition").asInt(0), time, text(from, "key"), text(from, "value"), headers);
    }

    private Object read(JsonNode ask) {
        var place = partition(ask);
        int count = ask.get("count").asInt();
        List<Object> found = new ArrayList<>();
        try (var consumer = consumer(ask.get("at"), Map.of())) {
            consumer.assign(List.of(place));
            consumer.seek(place, ask.get("offset").asLong());
            long deadline = System.currentTimeMillis() + PATIENCE_MS;
            while (found.size() < count && System.currentTimeMillis() < deadline) {
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    found.add(shown(record));
                }
            }
        }
        return found.size() > count ? found.subList(0, count) : found;
    }

    private static Map<String, Object> shown(ConsumerRecord<String, String> record) {
        List<List<String>> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add(List.of(header.key(), new String(header.value())));
        }
        Map<String, Object> shown = new HashMap<>();
        shown.put("offset", record.offset());
        shown.put("key", record.key());
        shown.put("value", record.value());
        shown.put("headers", headers);
        shown.put("time", record.timestamp());
        return shown;
    }

    private Object administer(JsonNode ask) throws Exception {
        try (var admin = Admin.create(Settings.of(ask.get("at")))) {
            return administer(admin, ask);
        }
    }

    private Object administer(Admin admin, JsonNode ask) throws Exception {
        String topic = text(ask, "topic");
        switch (ask.get("do").asText()) {
            case "topics": {
                Set<String> names = admin.listTopics().names().get();
                Map<String, Integer> counts = new TreeMap<>();
                admin.describeTopics(names).allTopicNames().get()
                    .forEach((name, described) -> counts.put(name, described.partitions().size()));
                return counts;
            }
            case "at_time":
                return offset(admin, partition(ask), OffsetSpec.forTimestamp(ask.get("time").asLong()));
            case "ends": {
                long low = offset(admin, partition(ask), OffsetSpec.earliest());
                return List.of(low, offset(admin, partition(ask), OffsetSpec.latest()));
            }
            case "create_topic": {
                Map<String, String> configs = new HashMap<>();
                ask.path("configs").properties().forEach(one -> configs.put(one.getKey(), one.getValue().asText()));
                var made = new NewTopic(topic, ask.get("partitions").asInt(), (short) 1).configs(configs);
                return admin.createTopics(List.of(made)).all().get();
            }
            case "delete_topic":
                return admin.deleteTopics(List.of(topic)).all().get();
            case "delete_records": {
                var before = RecordsToDelete.beforeOffset(ask.get("offset").asLong());
                return admin.deleteRecords(Map.of(partition(ask), before)).all().get();
            }
            case "configs": {
                var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
                Map<String, String> values = new TreeMap<>();
                admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()
                    .forEach(entry -> values.put(entry.name(), entry.value()));
                return values;
            }
            case "set_config": {
                var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
                var entry = new ConfigEntry(text(ask, "name"), text(ask, "value"));
                var change = new AlterConfigOp(entry, AlterConfigOp.OpType.SET);
                return admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
            }
            case "survey":
                return Survey.of(admin, topic, text(ask, "group"));
            default:
                return groups(admin, ask);
        }
    }

    private Object groups(Admin admin, JsonNode ask) throws Exception {
        String group = text(ask, "group");
        return switch (ask.get("do").asText()) {
            case "groups" -> admin.listGroups().all().get().stream().map(GroupListing::groupId).sorted().toList();
            case "describe_group" -> {
                var found = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
                yield List.of(found.groupState().toString(), found.members().size());
            }
            case "delete_group" -> admin.deleteConsumerGroups(List.of(group)).all().get();
            case "committed" ->
                admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(partition(ask)).offset();
            default -> throw new IllegalArgumentException("the program does not have this verb");
        };
    }

    private static long offset(Admin admin, TopicPartition place, OffsetSpec spec) throws Exception {
        return admin.listOffsets(Map.of(place, spec)).partitionResult(place).get().offset();
    }

    static TopicPartition partition(JsonNode ask) {
        return new TopicPartition(text(ask, "topic"), ask.get("partition").asInt());
    }

    static String text(JsonNode node, String name) {
        JsonNode found = node.get(name);
        return found == null || found.isNull() ? null : found.asText();
    }
}
