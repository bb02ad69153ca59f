package setup

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// proxy is an HTTP proxy that reaches neither this machine nor the metadata addresses at which clouds hand out
// credentials. It uses the host's own proxy if there is one.
type proxy struct {
	// upstream returns the host's proxy for a request, as http.ProxyFromEnvironment does.
	upstream func(*http.Request) (*url.URL, error)
	// own are the addresses of this machine.
	own map[netip.Addr]bool
	// refused is called with the host of a request that was refused.
	refused func(host string)

	received atomic.Int64
}

const (
	dialTimeout = 30 * time.Second
	idleTimeout = 5 * time.Minute
)

// errForbidden is returned for addresses that the proxy must not reach.
var errForbidden = errors.New("set-up commands reach neither this machine nor metadata addresses")

func newProxy(refused func(host string)) *proxy {
	p := &proxy{upstream: http.ProxyFromEnvironment, own: map[netip.Addr]bool{}, refused: refused}
	addresses, _ := net.InterfaceAddrs() // without them, loopback is still refused
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				p.own[ip.Unmap()] = true
			}
		}
	}
	return p
}

// forbids reports whether the proxy must not reach an address.
func (p *proxy) forbids(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	if nat64 := netip.MustParsePrefix("64:ff9b::/96"); nat64.Contains(ip) {
		b := ip.As16()
		ip = netip.AddrFrom4([4]byte(b[12:]))
	}
	if ip.IsLoopback() || ip.IsUnspecified() || ip.IsMulticast() || ip.IsLinkLocalUnicast() || p.own[ip] ||
		ip.Is4() && (ip.As4()[0] == 0 || ip.As4()[0] >= 240) {
		return true
	}
	switch ip.String() {
	case "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254": // metadata services
		return true
	}
	return false
}

func (p *proxy) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return p.counting(ctx, network, address, func(_, to string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(to)
		if err != nil || p.forbids(at.Addr()) {
			return errForbidden
		}
		return nil
	})
}

// dialUpstream connects to the host's own proxy, which may be on this machine.
func (p *proxy) dialUpstream(ctx context.Context, network, address string) (net.Conn, error) {
	return p.counting(ctx, network, address, nil)
}

func (p *proxy) counting(
	ctx context.Context, network, address string, control func(_, to string, _ syscall.RawConn) error,
) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: dialTimeout, Control: control}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return counted{conn, &p.received}, nil
}

// counted adds up what a connection receives.
type counted struct {
	net.Conn
	received *atomic.Int64
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received.Add(int64(n))
	return n, err
}

// handler serves the requests of the proxy's clients.
func (p *proxy) handler() http.Handler {
	direct := &http.Transport{DialContext: p.dial, IdleConnTimeout: time.Minute, DisableCompression: true}
	through := &http.Transport{
		Proxy:       func(r *http.Request) (*url.URL, error) { return p.upstream(r) },
		DialContext: p.dialUpstream, IdleConnTimeout: time.Minute, DisableCompression: true,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodConnect:
			p.connect(w, r)
			return
		case r.URL.Scheme != "http" || r.URL.Host == "":
			http.Error(w, "this is a proxy for http and https", http.StatusBadRequest)
			return
		}
		forward := &httputil.ReverseProxy{
			Rewrite: func(*httputil.ProxyRequest) {}, Transport: direct, ErrorLog: log.New(io.Discard, "", 0),
			ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) { p.fail(w, r.URL.Hostname(), err) },
		}
		via, err := p.upstream(r)
		if err == nil && via != nil {
			forward.Transport = through
			err = p.check(r.Context(), r.URL.Hostname())
		}
		if err != nil {
			p.fail(w, r.URL.Hostname(), err)
			return
		}
		forward.ServeHTTP(w, r)
	})
}

func (p *proxy) fail(w http.ResponseWriter, host string, err error) {
	code := http.StatusBadGateway
	if errors.Is(err, errForbidden) {
		code = http.StatusForbidden
		p.refused(host)
	}
	http.Error(w, fmt.Sprintf("%s: %v", host, err), code)
}

// check returns errForbidden for a host that the host's own proxy must not be asked for. Names that only that proxy can
// resolve are allowed.
func (p *proxy) check(ctx context.Context, host string) error {
	if ip, err := netip.ParseAddr(host); err == nil {
		if p.forbids(ip) {
			return errForbidden
		}
		return nil
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if name == "localhost" || strings.HasSuffix(name, ".localhost") || name == "metadata.google.internal" {
		return errForbidden
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	found, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	for _, ip := range found {
		if p.forbids(ip) {
			return errForbidden
		}
	}
	return nil
}

func (p *proxy) connect(w http.ResponseWriter, r *http.Request) {
	host := r.URL.Hostname()
	up, err := p.tunnel(r.Context(), r.URL)
	if err != nil {
		p.fail(w, host, err)
		return
	}
	defer up.Close()
	down, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // the client is gone
	}
	defer down.Close()
	if _, err := io.WriteString(down, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	stop := context.AfterFunc(r.Context(), func() { up.Close() })
	defer stop()
	var sending sync.WaitGroup
	sending.Go(func() {
		_, _ = io.Copy(idle{up}, buffered) // neither side can use the other's error
		up.Close()
	})
	_, _ = io.Copy(down, idle{up})
	down.Close()
	up.Close()
	sending.Wait()
}

// idle is a connection that fails when it was idle for too long.
type idle struct{ net.Conn }

func (c idle) Read(b []byte) (int, error) {
	_ = c.SetReadDeadline(time.Now().Add(idleTimeout)) // fails on a closed connection, and so does the read
	return c.Conn.Read(b)
}

func (c idle) Write(b []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(idleTimeout))
	return c.Conn.Write(b)
}

// tunnel connects to the target of a CONNECT request, through the host's own proxy if there is one.
func (p *proxy) tunnel(ctx context.Context, target *url.URL) (net.Conn, error) {
	via, err := p.upstream(&http.Request{URL: &url.URL{Scheme: "https", Host: target.Host}})
	if err != nil {
		return nil, err
	}
	if via == nil {
		return p.dial(ctx, "tcp", target.Host)
	}
	if err := p.check(ctx, target.Hostname()); err != nil {
		return nil, err
	}
	return p.through(ctx, via, target.Host)
}

// through asks the host's own proxy for a tunnel.
func (p *proxy) through(ctx context.Context, via *url.URL, target string) (net.Conn, error) {
	if via.Scheme != "http" && via.Scheme != "https" {
		return nil, fmt.Errorf("proxies of type %s are not supported for set-ups", via.Scheme)
	}
	address := via.Host
	if via.Port() == "" {
		address = net.JoinHostPort(via.Hostname(), map[string]string{"http": "80", "https": "443"}[via.Scheme])
	}
	conn, err := p.dialUpstream(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if via.Scheme == "https" {
		conn = tls.Client(conn, &tls.Config{ServerName: via.Hostname()})
	}
	ask := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: target}, Host: target, Header: http.Header{}}
	if via.User != nil {
		secret, _ := via.User.Password()
		login := base64.StdEncoding.EncodeToString([]byte(via.User.Username() + ":" + secret))
		ask.Header.Set("Proxy-Authorization", "Basic "+login)
	}
	_ = conn.SetDeadline(time.Now().Add(dialTimeout)) // fails on a closed connection, and so does what follows
	err = ask.Write(conn)
	if err == nil {
		err = accepted(conn)
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("the proxy %s: %w", via.Redacted(), err)
	}
	return conn, conn.SetDeadline(time.Time{})
}

// accepted reads a proxy's response byte by byte, because what follows belongs to the tunnel.
func accepted(conn net.Conn) error {
	const most = 16 << 10
	var answer []byte
	for one := make([]byte, 1); !bytes.HasSuffix(answer, []byte("\r\n\r\n")); answer = append(answer, one[0]) {
		if len(answer) > most {
			return errors.New("its response header exceeds 16 KiB")
		}
		if _, err := io.ReadFull(conn, one); err != nil {
			return err
		}
	}
	response, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(answer)), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return err
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}
