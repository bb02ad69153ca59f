package setup

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
)

func TestForbiddenAddresses(t *testing.T) {
	p := newProxy(nil)
	p.own = map[netip.Addr]bool{netip.MustParseAddr("192.0.2.7"): true}
	for address, want := range map[string]bool{
		"127.0.0.1": true, "127.8.9.1": true, "::1": true, "0.0.0.0": true, "0.1.2.3": true, "::": true,
		"::ffff:127.0.0.1": true, "64:ff9b::7f00:1": true, "64:ff9b::a9fe:a9fe": true,
		"169.254.169.254": true, "fe80::1": true, "fe80::1%eth0": true, "fd00:ec2::254": true, "100.100.100.200": true,
		"168.63.129.16": true, "192.0.0.192": true, "224.0.0.1": true, "255.255.255.255": true, "192.0.2.7": true,
		"::ffff:192.0.2.7": true, "192.0.2.8": false, "93.184.216.34": false, "2606:2800:220:1::1": false, "10.0.0.5": false,
	} {
		if got := p.forbids(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %v, want %v", address, got, want)
		}
	}
}

// client returns an HTTP client that uses the proxy.
func client(t *testing.T, p *proxy) *http.Client {
	t.Helper()
	server := httptest.NewServer(p.handler())
	t.Cleanup(server.Close)
	via, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{Proxy: http.ProxyURL(via)}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// TestProxy: requests and tunnels to this machine are refused, whatever name they use. With an upstream proxy on the
// host, allowed ones go through it.
func TestProxy(t *testing.T) {
	target := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "secret")
	}))
	defer target.Close()
	plain := httptest.NewServer(target.Config.Handler)
	defer plain.Close()
	var mu sync.Mutex
	var refused []string
	p := newProxy(func(host string) {
		mu.Lock()
		defer mu.Unlock()
		refused = append(refused, host)
	})
	p.upstream = func(*http.Request) (*url.URL, error) { return nil, nil }
	c := client(t, p)
	_, port, _ := strings.Cut(target.Listener.Addr().String(), ":")
	for _, address := range []string{target.URL, plain.URL, "https://localhost:" + port} {
		response, err := c.Get(address)
		if err == nil {
			defer response.Body.Close()
			if response.StatusCode != http.StatusForbidden {
				t.Errorf("%s: %s", address, response.Status)
			}
		} else if !strings.Contains(err.Error(), "Forbidden") {
			t.Errorf("%s: %v", address, err)
		}
	}
	if len(refused) != 3 {
		t.Errorf("told that %q were refused", refused)
	}

	// The host's own proxy is on this machine, and resolves names that nobody else can.
	parent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			io.WriteString(w, "over the parent: "+r.URL.String())
			return
		}
		if r.Host != "registry.invalid:443" || r.Header.Get("Proxy-Authorization") != "Basic dTpw" {
			http.Error(w, r.Host, http.StatusBadGateway)
			return
		}
		var d net.Dialer
		up, err := d.DialContext(context.Background(), "tcp", target.Listener.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		defer up.Close()
		w.WriteHeader(http.StatusOK)
		down, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer down.Close()
		go io.Copy(up, buffered)
		io.Copy(down, up)
	}))
	defer parent.Close()
	via, err := url.Parse(strings.Replace(parent.URL, "http://", "http://u:p@", 1))
	if err != nil {
		t.Fatal(err)
	}
	p.upstream = func(*http.Request) (*url.URL, error) { return via, nil }
	c.Transport.(*http.Transport).TLSClientConfig = target.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	c.Transport.(*http.Transport).TLSClientConfig.ServerName = "example.com"
	for address, want := range map[string]string{
		"https://registry.invalid/x": "secret", "http://registry.invalid/x": "over the parent: http://registry.invalid/x",
	} {
		response, err := c.Get(address)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		got, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", address, got, err)
		}
	}
	response, err := c.Get("https://169.254.169.254/latest")
	if err == nil {
		response.Body.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "Forbidden") {
		t.Errorf("a metadata address over the host's own proxy: %v", err)
	}
	if p.received.Load() == 0 {
		t.Error("no received bytes were counted")
	}
}
