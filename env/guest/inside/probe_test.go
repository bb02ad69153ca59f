//go:build linux

package inside

import (
	"net"
	"testing"
)

// A host that refuses a connection has been reached. What the ICMP messages of a firewall say is in
// TestNetworkByPolicy of env/kubernetes.
func TestAnswered(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, c := range map[string]struct {
		target string
		want   bool
	}{
		"accepts":           {"tcp " + l.Addr().String(), true},
		"says nothing":      {"udp " + silent.LocalAddr().String(), false},
		"no address":        {"tcp nowhere", false},
		"a closed UDP port": {"udp 127.0.0.1:1", false},
	} {
		if got := answered(c.target); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	l.Close()
	if !answered("tcp " + l.Addr().String()) {
		t.Error("a refused connection is no answer")
	}
}
