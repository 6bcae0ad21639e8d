// An OpenID provider of another make on this machine: the example server of github.com/zitadel/oidc, as it is, with a
// client for the code flow and one for devices. It prints one line of JSON when it listens:
// {"issuer": "http://127.0.0.1:PORT/"}
//
// Its users and their passwords are the library's own: test-user@127.0.0.1 is "id1", test-user2 is "id2".
package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	issuer := fmt.Sprintf("http://%s/", listener.Addr())
	storage.RegisterClients(
		storage.NativeClient("felixctl", "http://127.0.0.1/callback"),
		storage.DeviceClient("felixctl-device", "a password of a device"),
	)
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	router := exampleop.SetupServer(issuer, storage.NewStorage(storage.NewUserStore(issuer)), logger, false)
	json.NewEncoder(os.Stdout).Encode(map[string]string{"issuer": issuer})
	fmt.Fprintln(os.Stderr, http.Serve(listener, router))
	os.Exit(1)
}
