// Does with franz-go what lines on standard input say.
package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sort"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"felix.test/kafka/line"
)

const patience = 60 * time.Second

var codecs = map[string]kgo.CompressionCodec{
	"": kgo.NoCompression(), "none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func options(at *line.At) ([]kgo.Opt, error) {
	opts := []kgo.Opt{kgo.SeedBrokers(at.Bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DialTimeout(patience)}
	if config, err := at.TLS(); err != nil {
		return nil, err
	} else if config != nil {
		opts = append(opts, kgo.DialTLSConfig(config))
	}
	switch at.Mechanism {
	case "PLAIN":
		opts = append(opts, kgo.SASL(plain.Plain(func(context.Context) (plain.Auth, error) {
			secret, err := at.Password()
			return plain.Auth{User: at.User, Pass: secret}, err
		})))
	case "OAUTHBEARER":
		opts = append(opts, kgo.SASL(oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			secret, err := at.Password()
			return oauth.Auth{Token: secret, Extensions: at.Extensions}, err
		})))
	}
	return opts, nil
}

func connect(at *line.At, more ...kgo.Opt) (*kgo.Client, error) {
	opts, err := options(at)
	if err != nil {
		return nil, err
	}
	return kgo.NewClient(append(opts, more...)...)
}

func record(topic string, from line.Record) *kgo.Record {
	record := &kgo.Record{Topic: topic, Partition: from.Partition, Key: line.Bytes(from.Key), Value: line.Bytes(from.Value)}
	for _, header := range from.Headers {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: header[0], Value: []byte(header[1])})
	}
	if from.Time != 0 {
		record.Timestamp = time.UnixMilli(from.Time)
	}
	return record
}

func produce(ctx context.Context, ask *line.Request) (any, error) {
	opts := []kgo.Opt{kgo.ProducerBatchCompression(codecs[ask.Codec]), kgo.ProducerLinger(20 * time.Millisecond)}
	acks := map[int]kgo.Acks{-1: kgo.AllISRAcks(), 0: kgo.NoAck(), 1: kgo.LeaderAck()}
	if ask.Acks != nil {
		opts = append(opts, kgo.RequiredAcks(acks[*ask.Acks]))
	}
	if !ask.Idempotent {
		opts = append(opts, kgo.DisableIdempotentWrite())
	}
	client, err := connect(&ask.At, opts...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var records []*kgo.Record
	for _, one := range ask.Records {
		records = append(records, record(ask.Topic, one))
	}
	return nil, client.ProduceSync(ctx, records...).FirstErr()
}

func read(ctx context.Context, ask *line.Request) (any, error) {
	from := map[string]map[int32]kgo.Offset{ask.Topic: {ask.Partition: kgo.NewOffset().At(ask.Offset)}}
	client, err := connect(&ask.At, kgo.ConsumePartitions(from))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	found := []line.Record{}
	for len(found) < ask.Count {
		fetches := client.PollRecords(ctx, ask.Count-len(found))
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		for _, one := range fetches.Records() {
			headers := [][2]string{}
			for _, header := range one.Headers {
				headers = append(headers, [2]string{header.Key, string(header.Value)})
			}
			found = append(found, line.Record{
				Offset: one.Offset, Key: line.Text(one.Key), Value: line.Text(one.Value), Headers: headers,
				Time: one.Timestamp.UnixMilli(), Partition: one.Partition,
			})
		}
	}
	return found, nil
}

type member struct {
	client *kgo.Client
	watch  line.Watch
	done   sync.WaitGroup
}

var (
	members = map[string]*member{}
	senders = map[string]*kgo.Client{}
)

func (it *member) given(topic string, more map[string][]int32) {
	it.watch.Change(func(seen *line.Seen) {
		seen.Partitions = append(seen.Partitions, more[topic]...)
		seen.Rebalances++
	})
}

func (it *member) gone(topic string, less map[string][]int32) {
	it.watch.Change(func(seen *line.Seen) {
		gone := map[int32]bool{}
		for _, one := range less[topic] {
			gone[one] = true
		}
		kept := []int32{}
		for _, one := range seen.Partitions {
			if !gone[one] {
				kept = append(kept, one)
			}
		}
		seen.Partitions, seen.Revoked = kept, seen.Revoked+len(gone)
	})
}

func join(ask *line.Request) (any, error) {
	it := new(member)
	on := func(change func(string, map[string][]int32)) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, of map[string][]int32) { change(ask.Topic, of) }
	}
	opts := []kgo.Opt{
		kgo.ConsumerGroup(ask.Group), kgo.ConsumeTopics(ask.Topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(on(it.given)), kgo.OnPartitionsRevoked(on(it.gone)), kgo.OnPartitionsLost(on(it.gone)),
	}
	switch ask.Strategy {
	case "consumer":
		opts = append(opts, kgo.ServerSideBalancer(), kgo.Balancers(kgo.RangeBalancer()))
	case "cooperative":
		opts = append(opts, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	default:
		opts = append(opts, kgo.Balancers(kgo.RangeBalancer()))
	}
	if ask.Instance != "" {
		opts = append(opts, kgo.InstanceID(ask.Instance))
	}
	if ask.SessionMs != 0 {
		session := time.Duration(ask.SessionMs) * time.Millisecond
		opts = append(opts, kgo.SessionTimeout(session), kgo.HeartbeatInterval(session/6))
	}
	client, err := connect(&ask.At, opts...)
	if err != nil {
		return nil, err
	}
	it.client = client
	it.done.Add(1)
	go func() {
		defer it.done.Done()
		for {
			fetches := client.PollFetches(context.Background())
			if fetches.IsClientClosed() {
				return
			}
			it.watch.Change(func(seen *line.Seen) {
				fetches.EachRecord(func(one *kgo.Record) { seen.Take(one.Offset) })
			})
		}
	}()
	members[ask.Member] = it
	return nil, nil
}

func commit(ctx context.Context, ask *line.Request) (any, error) {
	at := map[string]map[int32]kgo.EpochOffset{ask.Topic: {ask.Partition: {Epoch: -1, Offset: ask.Offset}}}
	var failed error
	client := members[ask.Member].client
	client.CommitOffsetsSync(ctx, at, commitDone(&failed))
	return nil, failed
}

func do(ask *line.Request) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	switch ask.Do {
	case "version":
		return version()
	case "produce":
		return produce(ctx, ask)
	case "read":
		return read(ctx, ask)
	case "join":
		return join(ask)
	case "look":
		return members[ask.Member].watch.Look(), nil
	case "commit":
		return commit(ctx, ask)
	case "leave":
		it := members[ask.Member]
		var err error
		if ask.Instance == "" {
			err = it.client.LeaveGroupContext(ctx)
		}
		it.client.Close()
		it.done.Wait()
		return nil, err
	case "open":
		client, err := connect(&ask.At)
		senders[ask.Sender] = client
		return nil, err
	case "send":
		sent := &kgo.Record{Topic: ask.Topic, Value: []byte(ask.Value)}
		return nil, senders[ask.Sender].ProduceSync(ctx, sent).FirstErr()
	case "shut":
		senders[ask.Sender].Close()
		return nil, nil
	default:
		return administer(ctx, ask)
	}
}

func administer(ctx context.Context, ask *line.Request) (any, error) {
	client, err := connect(&ask.At, kgo.RetryTimeout(20*time.Second))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	switch ask.Do {
	case "topics":
		listed, err := admin.ListTopics(ctx)
		counts := map[string]int{}
		for name, topic := range listed {
			counts[name] = len(topic.Partitions)
		}
		return counts, err
	case "at_time":
		listed, err := admin.ListOffsetsAfterMilli(ctx, ask.Time, ask.Topic)
		return offset(listed, err, ask)
	case "ends":
		first, err := admin.ListStartOffsets(ctx, ask.Topic)
		low, failed := offset(first, err, ask)
		last, err := admin.ListEndOffsets(ctx, ask.Topic)
		high, err := offset(last, err, ask)
		return []int64{low, high}, errors.Join(failed, err)
	case "create_topic":
		configs := map[string]*string{}
		for name, value := range ask.Configs {
			configs[name] = &value
		}
		_, err := admin.CreateTopic(ctx, ask.Partitions, 1, configs, ask.Topic)
		return nil, err
	case "delete_topic":
		_, err := admin.DeleteTopic(ctx, ask.Topic)
		return nil, err
	case "delete_records":
		offsets := kadm.Offsets{}
		offsets.AddOffset(ask.Topic, ask.Partition, ask.Offset, -1)
		deleted, err := admin.DeleteRecords(ctx, offsets)
		return nil, errors.Join(err, deleted.Error())
	case "configs":
		found, err := admin.DescribeTopicConfigs(ctx, ask.Topic)
		values := map[string]string{}
		for _, resource := range found {
			err = errors.Join(err, resource.Err)
			for _, config := range resource.Configs {
				values[config.Key] = config.MaybeValue()
			}
		}
		return values, err
	case "set_config":
		change := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: ask.Name, Value: &ask.Value}}
		changed, err := admin.AlterTopicConfigs(ctx, change, ask.Topic)
		for _, one := range changed {
			err = errors.Join(err, one.Err)
		}
		return nil, err
	default:
		return groups(ctx, admin, ask)
	}
}

func groups(ctx context.Context, admin *kadm.Client, ask *line.Request) (any, error) {
	switch ask.Do {
	case "groups":
		listed, err := admin.ListGroups(ctx)
		names := listed.Groups()
		sort.Strings(names)
		return names, err
	case "describe_group":
		found, err := admin.DescribeGroups(ctx, ask.Group)
		group := found[ask.Group]
		return []any{group.State, len(group.Members)}, errors.Join(err, group.Err)
	case "delete_group":
		_, err := admin.DeleteGroup(ctx, ask.Group)
		return nil, err
	case "committed":
		found, err := admin.FetchOffsets(ctx, ask.Group)
		at, _ := found.Lookup(ask.Topic, ask.Partition)
		return at.At, errors.Join(err, at.Err)
	default:
		return nil, line.ErrUnknownVerb
	}
}

func offset(listed kadm.ListedOffsets, err error, ask *line.Request) (int64, error) {
	found, there := listed.Lookup(ask.Topic, ask.Partition)
	if !there && err == nil {
		err = fmt.Errorf("nothing of %s/%d", ask.Topic, ask.Partition)
	}
	return found.Offset, errors.Join(err, found.Err)
}

func version() (any, error) {
	built, _ := debug.ReadBuildInfo()
	for _, module := range built.Deps {
		if module.Path == "github.com/twmb/franz-go" {
			return module.Version, nil
		}
	}
	return nil, errors.New("built without modules")
}

func main() {
	line.Serve(do)
}
