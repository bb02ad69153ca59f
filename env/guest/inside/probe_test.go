//go:build linux

package inside

import (
	"net"
	"testing"
)

// What the ICMP messages of a firewall say is in TestNetworkByPolicy of env/kubernetes.
func TestTry(t *testing.T) {
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
		network, address string
		want             answer
	}{
		"accepts":           {"tcp", l.Addr().String(), accepted},
		"says nothing":      {"udp", silent.LocalAddr().String(), nothing},
		"no address":        {"tcp", "nowhere", nothing},
		"a closed UDP port": {"udp", "127.0.0.1:1", nothing},
	} {
		if got := (target{network: c.network, address: c.address}).try(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	l.Close()
	if got := (target{network: "tcp", address: l.Addr().String()}).try(); got != refused {
		t.Errorf("a closed port: %v", got)
	}
}

// A host that refuses a connection has been reached, unless those refuse, too, that listen.
func TestReached(t *testing.T) {
	t.Parallel()
	targets := []target{{"tcp", "api:443", true}, {"tcp", "gateway:53", false}, {"udp", "dns:53", false}}
	for _, c := range []struct {
		api, gateway, dns answer
		want              string
	}{
		{nothing, nothing, nothing, ""},
		{nothing, refused, nothing, "tcp gateway:53"},
		{refused, refused, nothing, ""},
		{refused, refused, accepted, "udp dns:53"},
		{refused, accepted, nothing, "tcp gateway:53"},
		{accepted, nothing, nothing, "tcp api:443"},
	} {
		if got := reached(targets, []answer{c.api, c.gateway, c.dns}); got != c.want {
			t.Errorf("%v, %v, %v: %q, want %q", c.api, c.gateway, c.dns, got, c.want)
		}
	}
}
