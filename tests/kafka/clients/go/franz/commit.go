package main

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// commitDone keeps what a commit was refused with.
func commitDone(failed *error) func(*kgo.Client, *kmsg.OffsetCommitRequest, *kmsg.OffsetCommitResponse, error) {
	return func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error) {
		*failed = err
		if answer == nil {
			return
		}
		for _, topic := range answer.Topics {
			for _, partition := range topic.Partitions {
				*failed = errors.Join(*failed, kerr.ErrorForCode(partition.ErrorCode))
			}
		}
	}
}
