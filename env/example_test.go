//go:build linux

package env_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"testing"

	"deepswe/env"
	"deepswe/env/guest"
	"deepswe/env/guest/inside"
	"deepswe/env/local"
)

// A provider runs its own binary as the program inside the sandbox, so the deepswe command begins like this.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == guest.Arg {
		os.Exit(inside.Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// All providers are used like this one, whose sandboxes are not isolated.
func ExampleProvider() {
	ctx := context.Background()
	host, err := local.NewHost(local.Options{})
	if err != nil {
		log.Fatal(err)
	}
	var provider env.Provider = host
	defer provider.Close()

	sandbox, err := provider.Start(ctx, env.Spec{Prepare: []string{"echo hello >greeting"}})
	if err != nil {
		log.Fatal(err)
	}
	defer sandbox.Close(ctx)

	result, err := sandbox.Run(ctx, env.Command{Line: "cat greeting; cat farewell"})
	if err != nil {
		log.Fatal(err) // the sandbox failed; a command that fails is a result
	}
	fmt.Printf("%sexit code %d\n", result.Stdout.Head, result.ExitCode)
	// Output:
	// hello
	// exit code 1
}
