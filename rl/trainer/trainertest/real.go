package trainertest

import (
	"os"
	"testing"

	"deepswe/env/testkit"
	"deepswe/rl/trainer/tinker"
)

// Tolerance is how far log-probabilities may differ that ought to be equal.
const Tolerance = 1e-4

// RealServer returns the address of SkyRL's own server, which ../shared/real/tinker/up.sh starts, and the name of its
// model. The test is skipped unless DEEPSWE_TEST_TINKER has the address.
func RealServer(t *testing.T) (url, base string) {
	t.Helper()
	if url = os.Getenv("DEEPSWE_TEST_TINKER"); url == "" {
		testkit.Skip(t, "tinker", "DEEPSWE_TEST_TINKER has the address of a server")
	}
	client, err := tinker.NewClient(tinker.ClientOptions{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	models, err := client.Capabilities(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return url, models[0].Name
}
