// Asks everything that an admin client can ask without changing anything, as consoles for Kafka do.

import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaFilter;

final class Survey {
    private Survey() {}

    /** What each question came to: `ok`, or the class of what it was refused with. */
    static Map<String, String> of(Admin admin, String topic, String group) throws ExecutionException, InterruptedException {
        var broker = admin.describeCluster().nodes().get().iterator().next();
        var place = new TopicPartition(topic, 0);
        var settings = List.of(
            new ConfigResource(ConfigResource.Type.TOPIC, topic), new ConfigResource(ConfigResource.Type.BROKER, broker.idString()));
        Map<String, Callable<Object>> asked = new TreeMap<>();
        asked.put("describeCluster", () -> {
            var cluster = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
            return List.of(cluster.clusterId().get(), cluster.nodes().get(), cluster.controller().get());
        });
        asked.put("listTopics", () -> admin.listTopics(new ListTopicsOptions().listInternal(true)).listings().get());
        asked.put("describeTopics", () -> {
            var options = new DescribeTopicsOptions().includeAuthorizedOperations(true);
            return admin.describeTopics(TopicCollection.ofTopicNames(List.of(topic)), options).allTopicNames().get();
        });
        asked.put("describeTopicsById", () -> {
            var id = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).topicId();
            return admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get();
        });
        asked.put("describeConfigs", () -> admin.describeConfigs(settings).all().get());
        asked.put("listConfigResources", () -> admin.listConfigResources().all().get());
        asked.put("describeLogDirs", () -> admin.describeLogDirs(List.of(broker.id())).allDescriptions().get());
        asked.put("describeAcls", () -> admin.describeAcls(AclBindingFilter.ANY).values().get());
        asked.put("describeClientQuotas", () -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get());
        asked.put("describeUserScramCredentials", () -> admin.describeUserScramCredentials().all().get());
        asked.put("describeFeatures", () -> admin.describeFeatures().featureMetadata().get());
        asked.put("describeMetadataQuorum", () -> admin.describeMetadataQuorum().quorumInfo().get());
        asked.put("describeProducers", () -> admin.describeProducers(List.of(place)).all().get());
        asked.put("listTransactions", () -> admin.listTransactions().all().get());
        asked.put("listPartitionReassignments", () -> admin.listPartitionReassignments().reassignments().get());
        asked.put("listGroups", () -> admin.listGroups().all().get());
        asked.put("describeConsumerGroups", () -> admin.describeConsumerGroups(List.of(group)).all().get());
        asked.put("describeClassicGroups", () -> admin.describeClassicGroups(List.of(group)).all().get());
        asked.put("listConsumerGroupOffsets", () -> admin.listConsumerGroupOffsets(group).all().get());
        for (var spec : specs().entrySet()) {
            asked.put("listOffsets " + spec.getKey(),
                () -> admin.listOffsets(Map.of(place, spec.getValue())).all().get());
        }
        Map<String, String> found = new TreeMap<>();
        asked.forEach((name, question) -> found.put(name, answer(question)));
        return found;
    }

    private static Map<String, OffsetSpec> specs() {
        return Map.of("earliest", OffsetSpec.earliest(), "latest", OffsetSpec.latest(),
            "maxTimestamp", OffsetSpec.maxTimestamp(), "forTimestamp", OffsetSpec.forTimestamp(0),
            "earliestLocal", OffsetSpec.earliestLocal(), "latestTiered", OffsetSpec.latestTiered());
    }

    private static String answer(Callable<Object> question) {
        try {
            question.call();
            return "ok";
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        } catch (Exception error) {
            return error.getClass().getSimpleName();
        }
    }
}
