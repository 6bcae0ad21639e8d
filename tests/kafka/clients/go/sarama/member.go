package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"felix.test/kafka/line"
)

// A member of a group, from join to leave.
type member struct {
	group   sarama.ConsumerGroup
	watch   line.Watch
	stop    context.CancelFunc
	done    sync.WaitGroup
	lock    sync.Mutex
	session sarama.ConsumerGroupSession
}

func join(ask *line.Request) (any, error) {
	config, err := configure(&ask.At)
	if err != nil {
		return nil, err
	}
	config.Consumer.Group.InstanceId = ask.Instance
	strategy := sarama.NewBalanceStrategyRange()
	if ask.Strategy == "cooperative" {
		strategy = sarama.NewBalanceStrategyCooperativeSticky()
	}
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy}
	if ask.SessionMs != 0 {
		config.Consumer.Group.Session.Timeout = time.Duration(ask.SessionMs) * time.Millisecond
		config.Consumer.Group.Heartbeat.Interval = config.Consumer.Group.Session.Timeout / 6
	}
	group, err := sarama.NewConsumerGroup([]string{ask.At.Bootstrap}, ask.Group, config)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	it := &member{group: group, stop: stop}
	it.done.Add(1)
	go func() {
		defer it.done.Done()
		for ctx.Err() == nil {
			if err := group.Consume(ctx, []string{ask.Topic}, it); err != nil {
				return
			}
		}
	}()
	members[ask.Member] = it
	return nil, nil
}

// Setup is called at the begin of a generation.
func (it *member) Setup(session sarama.ConsumerGroupSession) error {
	it.lock.Lock()
	it.session = session
	it.lock.Unlock()
	it.watch.Change(func(seen *line.Seen) { seen.Rebalances++ })
	return nil
}

// Cleanup is called at the end of a generation.
func (it *member) Cleanup(sarama.ConsumerGroupSession) error {
	return nil
}

// ConsumeClaim reads one partition until it is taken away.
func (it *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	mine := claim.Partition()
	it.watch.Change(func(seen *line.Seen) { seen.Partitions = append(seen.Partitions, mine) })
	defer it.watch.Change(func(seen *line.Seen) {
		is := func(other int32) bool { return other == mine }
		seen.Partitions = slices.DeleteFunc(seen.Partitions, is)
		seen.Revoked++
	})
	for {
		select {
		case one, more := <-claim.Messages():
			if !more {
				return nil
			}
			it.watch.Change(func(seen *line.Seen) { seen.Take(one.Offset) })
		case <-session.Context().Done():
			return nil
		}
	}
}

func (it *member) commit(topic string, partition int32, offset int64) error {
	it.lock.Lock()
	defer it.lock.Unlock()
	// Marking goes forward only, and resetting back only.
	it.session.MarkOffset(topic, partition, offset, "")
	it.session.ResetOffset(topic, partition, offset, "")
	it.session.Commit()
	return nil
}

func (it *member) leave() error {
	it.stop()
	err := it.group.Close()
	it.done.Wait()
	return err
}
