// An OpenID provider of another make on this machine: the example server of github.com/zitadel/oidc, as it is, with a
// client for the code flow and one for devices. It prints one line of JSON when it listens:
// {"issuer": "http://127.0.0.1:PORT/"}
//
// Its one user is "dora", with the password "verysecure". Her id is her name, because the example's device flow takes one
// for the other.
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

type users map[string]*storage.User

func (all users) GetUserByID(id string) *storage.User         { return all[id] }
func (all users) GetUserByUsername(name string) *storage.User { return all[name] }
func (all users) ExampleClientID() string                     { return storage.ServiceUserID }

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	issuer := fmt.Sprintf("http://%s/", listener.Addr())
	storage.RegisterClients(
		storage.NativeClient("felixctl", "http://127.0.0.1/callback"),
		storage.NativeClient("gateway", "http://127.0.0.1/auth/callback"),
		storage.DeviceClient("felixctl-device", "a password of a device"),
	)
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	dora := &storage.User{
		ID: "dora", Username: "dora", Password: "verysecure", FirstName: "Dora", LastName: "Example",
		Email: "dora@example.com", EmailVerified: true,
	}
	router := exampleop.SetupServer(issuer, storage.NewStorage(users{"dora": dora}), logger, false)
	json.NewEncoder(os.Stdout).Encode(map[string]string{"issuer": issuer})
	fmt.Fprintln(os.Stderr, http.Serve(listener, router))
	os.Exit(1)
}
