// Does with sarama what lines on standard input say.
package main

import (
	"context"
	"errors"
	"runtime/debug"
	"sort"
	"time"

	"github.com/IBM/sarama"

	"felix.test/kafka/line"
)

const patience = 60 * time.Second

var (
	members = map[string]*member{}
	senders = map[string]sarama.SyncProducer{}
	codecs  = map[string]sarama.CompressionCodec{
		"": sarama.CompressionNone, "none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP,
		"snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	}
)

type bearer struct{ at *line.At }

func (it bearer) Token() (*sarama.AccessToken, error) {
	secret, err := it.at.Password()
	return &sarama.AccessToken{Token: secret, Extensions: it.at.Extensions}, err
}

func configure(at *line.At) (*sarama.Config, error) {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Net.DialTimeout = patience
	config.Producer.Return.Successes = true
	config.Producer.MaxMessageBytes = 1_000_000
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	trusted, err := at.TLS()
	if err != nil {
		return nil, err
	}
	config.Net.TLS.Enable, config.Net.TLS.Config = trusted != nil, trusted
	if at.Mechanism != "" {
		secret, err := at.Password()
		if err != nil {
			return nil, err
		}
		config.Metadata.Retry.Max = 0
		config.Net.SASL.Enable = true
		config.Net.SASL.Mechanism = sarama.SASLMechanism(at.Mechanism)
		config.Net.SASL.User, config.Net.SASL.Password = at.User, secret
		config.Net.SASL.TokenProvider = bearer{at}
	}
	return config, nil
}

func produce(ask *line.Request) (any, error) {
	config, err := configure(&ask.At)
	if err != nil {
		return nil, err
	}
	config.Producer.Compression = codecs[ask.Codec]
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Flush.Frequency = 20 * time.Millisecond
	if ask.Acks != nil {
		config.Producer.RequiredAcks = sarama.RequiredAcks(*ask.Acks)
	}
	if ask.Idempotent {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewSyncProducer([]string{ask.At.Bootstrap}, config)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	var messages []*sarama.ProducerMessage
	for _, one := range ask.Records {
		messages = append(messages, message(ask.Topic, one))
	}
	return nil, producer.SendMessages(messages)
}

func message(topic string, from line.Record) *sarama.ProducerMessage {
	message := &sarama.ProducerMessage{Topic: topic, Partition: from.Partition}
	if from.Key != nil {
		message.Key = sarama.StringEncoder(*from.Key)
	}
	if from.Value != nil {
		message.Value = sarama.StringEncoder(*from.Value)
	}
	for _, header := range from.Headers {
		pair := sarama.RecordHeader{Key: []byte(header[0]), Value: []byte(header[1])}
		message.Headers = append(message.Headers, pair)
	}
	if from.Time != 0 {
		message.Timestamp = time.UnixMilli(from.Time)
	}
	return message
}

func read(ctx context.Context, ask *line.Request) (any, error) {
	config, err := configure(&ask.At)
	if err != nil {
		return nil, err
	}
	consumer, err := sarama.NewConsumer([]string{ask.At.Bootstrap}, config)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(ask.Topic, ask.Partition, ask.Offset)
	if err != nil {
		return nil, err
	}
	defer partition.Close()
	found := []line.Record{}
	for len(found) < ask.Count {
		select {
		case one := <-partition.Messages():
			headers := [][2]string{}
			for _, header := range one.Headers {
				headers = append(headers, [2]string{string(header.Key), string(header.Value)})
			}
			found = append(found, line.Record{
				Offset: one.Offset, Key: line.Text(one.Key), Value: line.Text(one.Value), Headers: headers,
				Time: one.Timestamp.UnixMilli(), Partition: one.Partition,
			})
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return found, nil
}

func do(ask *line.Request) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	switch ask.Do {
	case "version":
		return version()
	case "produce":
		return produce(ask)
	case "read":
		return read(ctx, ask)
	case "join":
		return join(ask)
	case "look":
		return members[ask.Member].watch.Look(), nil
	case "commit":
		return nil, members[ask.Member].commit(ask.Topic, ask.Partition, ask.Offset)
	case "leave":
		return nil, members[ask.Member].leave()
	case "open":
		config, err := configure(&ask.At)
		if err != nil {
			return nil, err
		}
		senders[ask.Sender], err = sarama.NewSyncProducer([]string{ask.At.Bootstrap}, config)
		return nil, err
	case "send":
		one := &sarama.ProducerMessage{Topic: ask.Topic, Value: sarama.StringEncoder(ask.Value)}
		_, _, err := senders[ask.Sender].SendMessage(one)
		return nil, err
	case "shut":
		return nil, senders[ask.Sender].Close()
	default:
		return administer(ask)
	}
}

func administer(ask *line.Request) (any, error) {
	config, err := configure(&ask.At)
	if err != nil {
		return nil, err
	}
	client, err := sarama.NewClient([]string{ask.At.Bootstrap}, config)
	if err != nil {
		return nil, err
	}
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	switch ask.Do {
	case "topics":
		listed, err := admin.ListTopics()
		counts := map[string]int32{}
		for name, topic := range listed {
			counts[name] = topic.NumPartitions
		}
		return counts, err
	case "at_time":
		return client.GetOffset(ask.Topic, ask.Partition, ask.Time)
	case "ends":
		low, failed := client.GetOffset(ask.Topic, ask.Partition, sarama.OffsetOldest)
		high, err := client.GetOffset(ask.Topic, ask.Partition, sarama.OffsetNewest)
		return []int64{low, high}, errors.Join(failed, err)
	case "create_topic":
		detail := &sarama.TopicDetail{NumPartitions: ask.Partitions, ReplicationFactor: 1, ConfigEntries: map[string]*string{}}
		for name, value := range ask.Configs {
			detail.ConfigEntries[name] = &value
		}
		return nil, admin.CreateTopic(ask.Topic, detail, false)
	case "delete_topic":
		return nil, admin.DeleteTopic(ask.Topic)
	case "delete_records":
		return nil, admin.DeleteRecords(ask.Topic, map[int32]int64{ask.Partition: ask.Offset})
	case "configs":
		found, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: ask.Topic})
		values := map[string]string{}
		for _, config := range found {
			values[config.Name] = config.Value
		}
		return values, err
	case "set_config":
		change := sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &ask.Value}
		entries := map[string]sarama.IncrementalAlterConfigsEntry{ask.Name: change}
		return nil, admin.IncrementalAlterConfig(sarama.TopicResource, ask.Topic, entries, false)
	default:
		return groups(admin, ask)
	}
}

func groups(admin sarama.ClusterAdmin, ask *line.Request) (any, error) {
	switch ask.Do {
	case "groups":
		listed, err := admin.ListConsumerGroups()
		names := []string{}
		for name := range listed {
			names = append(names, name)
		}
		sort.Strings(names)
		return names, err
	case "describe_group":
		found, err := admin.DescribeConsumerGroups([]string{ask.Group})
		if err != nil {
			return nil, err
		}
		return []any{found[0].State, len(found[0].Members)}, nil
	case "delete_group":
		return nil, admin.DeleteConsumerGroup(ask.Group)
	case "committed":
		asked := map[string][]int32{ask.Topic: {ask.Partition}}
		found, err := admin.ListConsumerGroupOffsets(ask.Group, asked)
		if err != nil {
			return nil, err
		}
		block := found.GetBlock(ask.Topic, ask.Partition)
		if block == nil {
			return nil, errors.New("there is no answer for the partition")
		}
		return block.Offset, nil
	default:
		return nil, line.ErrUnknownVerb
	}
}

func version() (any, error) {
	built, _ := debug.ReadBuildInfo()
	for _, module := range built.Deps {
		if module.Path == "github.com/IBM/sarama" {
			return module.Version, nil
		}
	}
	return nil, errors.New("built without modules")
}

func main() {
	line.Serve(do)
}
