// A member of a group: a thread that polls until it is told to leave.

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;

final class Member implements ConsumerRebalanceListener {
    private final KafkaConsumer<String, String> consumer;
    private final Thread thread;
    private final Queue<Runnable> wishes = new ArrayDeque<>();
    private final TreeSet<Integer> partitions = new TreeSet<>();
    private boolean leaves;
    private int rebalances;
    private int revoked;
    private int taken;
    private Long first;
    private String failed;

    Member(JsonNode ask) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("group.id", Driver.text(ask, "group"));
        if (ask.hasNonNull("instance")) {
            settings.put("group.instance.id", Driver.text(ask, "instance"));
        }
        String strategy = ask.path("strategy").asText("eager");
        if (strategy.equals("consumer")) {
            settings.put("group.protocol", "consumer");
        } else {
            String assignor = strategy.equals("cooperative") ? "CooperativeStickyAssignor" : "RangeAssignor";
            settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor);
            if (ask.hasNonNull("session_ms")) {
                settings.put("session.timeout.ms", ask.get("session_ms").asInt());
                settings.put("heartbeat.interval.ms", ask.get("session_ms").asInt() / 6);
            }
        }
        consumer = Driver.consumer(ask.get("at"), settings);
        consumer.subscribe(List.of(Driver.text(ask, "topic")), this);
        thread = new Thread(this::poll);
        thread.setDaemon(true);
        thread.start();
    }

    private void poll() {
        try {
            while (true) {
                Runnable wish;
                synchronized (this) {
                    if (leaves) {
                        break;
                    }
                    wish = wishes.poll();
                }
                if (wish != null) {
                    wish.run();
                    continue;
                }
                try {
                    for (var record : consumer.poll(Duration.ofMillis(200))) {
                        take(record.offset());
                    }
                } catch (WakeupException woken) {
                    // Somebody wishes something.
                }
            }
            consumer.close();
        } catch (RuntimeException error) {
            synchronized (this) {
                failed = error.toString();
            }
        }
    }

    private synchronized void take(long offset) {
        first = first == null ? offset : first;
        taken++;
    }

    @Override
    public synchronized void onPartitionsAssigned(Collection<TopicPartition> more) {
        more.forEach(one -> partitions.add(one.partition()));
        rebalances++;
    }

    @Override
    public synchronized void onPartitionsRevoked(Collection<TopicPartition> less) {
        less.forEach(one -> partitions.remove(one.partition()));
        revoked += less.size();
    }

    synchronized Map<String, Object> look() {
        if (failed != null) {
            throw new IllegalStateException(failed);
        }
        Map<String, Object> seen = new HashMap<>();
        seen.put("partitions", List.copyOf(partitions));
        seen.put("rebalances", rebalances);
        seen.put("revoked", revoked);
        seen.put("taken", taken);
        seen.put("first", first);
        return seen;
    }

    Object commit(TopicPartition place, long offset) throws Exception {
        var done = new CompletableFuture<Void>();
        synchronized (this) {
            wishes.add(() -> {
                try {
                    consumer.commitSync(Map.of(place, new OffsetAndMetadata(offset)));
                    done.complete(null);
                } catch (RuntimeException error) {
                    done.completeExceptionally(error);
                }
            });
        }
        return done.get();
    }

    Object leave() throws InterruptedException {
        synchronized (this) {
            leaves = true;
        }
        consumer.wakeup();
        thread.join(60_000);
        return null;
    }
}
