// Package line lets a program do what lines on standard input say, and answer each with a line: see
// clients/remote.py.
package line

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
)

// At is where a request goes, and as whom.
type At struct {
	Bootstrap, Mechanism, User, Secret, CA string
	SecretFile                             string `json:"secret_file"`
	Extensions                             map[string]string
}

// Password is the secret; one in a file is read each time, since others renew it.
func (at *At) Password() (string, error) {
	if at.SecretFile == "" {
		return at.Secret, nil
	}
	text, err := os.ReadFile(at.SecretFile)
	return strings.TrimSpace(string(text)), err
}

// TLS is what to trust; nil means no TLS.
func (at *At) TLS() (*tls.Config, error) {
	if at.CA == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(at.CA)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", at.CA)
	}
	return &tls.Config{RootCAs: roots}, nil
}

// Record is a record as lines have it.
type Record struct {
	Offset    int64       `json:"offset"`
	Key       *string     `json:"key"`
	Value     *string     `json:"value"`
	Headers   [][2]string `json:"headers"`
	Time      int64       `json:"time"`
	Partition int32       `json:"partition"`
}

// Text is what bytes say; nil stays nil.
func Text(bytes []byte) *string {
	if bytes == nil {
		return nil
	}
	text := string(bytes)
	return &text
}

// Bytes is the other way round.
func Bytes(text *string) []byte {
	if text == nil {
		return nil
	}
	return append([]byte{}, *text...)
}

// Request is one line.
type Request struct {
	Do                                                            string
	At                                                            At
	Topic, Group, Member, Instance, Strategy, Codec, Name, Sender string
	Value                                                         string
	Partition, Partitions                                         int32
	Offset, Time                                                  int64
	Count                                                         int
	Acks                                                          *int
	Idempotent                                                    bool
	SessionMs                                                     int64 `json:"session_ms"`
	Records                                                       []Record
	Configs                                                       map[string]string
}

// Seen is what has happened to a member of a group.
type Seen struct {
	Partitions []int32 `json:"partitions"`
	Rebalances int     `json:"rebalances"`
	Revoked    int     `json:"revoked"`
	Taken      int     `json:"taken"`
	First      *int64  `json:"first"`
}

// Watch guards what is seen of a member.
type Watch struct {
	lock sync.Mutex
	seen Seen
}

// Change notes something.
func (watch *Watch) Change(change func(*Seen)) {
	watch.lock.Lock()
	defer watch.lock.Unlock()
	change(&watch.seen)
}

// Look gives a copy of what was seen.
func (watch *Watch) Look() Seen {
	watch.lock.Lock()
	defer watch.lock.Unlock()
	seen := watch.seen
	seen.Partitions = append([]int32{}, seen.Partitions...)
	return seen
}

// Take notes a record that was read.
func (seen *Seen) Take(offset int64) {
	if seen.First == nil {
		seen.First = &offset
	}
	seen.Taken++
}

// ErrUnknownVerb is what a verb is answered with that the program does not have.
var ErrUnknownVerb = errors.New("the program does not have this verb")

// Serve answers line by line until there are none.
func Serve(do func(*Request) (any, error)) {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for {
		text, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		request := new(Request)
		var answer any
		if err = json.Unmarshal(text, request); err == nil {
			answer, err = do(request)
		}
		if err != nil {
			_ = out.Encode(map[string]string{"error": err.Error()})
		} else {
			_ = out.Encode(map[string]any{"ok": answer})
		}
	}
}
