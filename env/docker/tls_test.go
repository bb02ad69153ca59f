package docker

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"deepswe/env"
)

// TestTLS reaches the daemon over TCP, with certificates for both sides.
func TestTLS(t *testing.T) {
	certs := t.TempDir()
	server, clients := issue(t, certs)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{server}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert,
	})
	if err != nil {
		t.Fatal(err)
	}
	forward(t, listener, "/var/run/docker.sock")
	host := "tcp://" + listener.Addr().String()
	t.Setenv("DOCKER_TLS_VERIFY", "1")
	t.Setenv("DOCKER_CERT_PATH", certs)
	p := provider(t, Options{Hosts: []string{host}})
	s := start(t, p, env.Spec{Image: busybox})
	if out := must(t, s, "echo over TLS"); out != "over TLS\n" {
		t.Errorf("printed %q", out)
	}
	t.Setenv("DOCKER_TLS_VERIFY", "")
	t.Setenv("DOCKER_CERT_PATH", "")
	_, err = New(t.Context(), Options{Hosts: []string{host}})
	var daemon *DaemonError
	if !errors.As(err, &daemon) {
		t.Errorf("without certificates: %v, want a DaemonError", err)
	}
}

// issue creates an authority with a certificate for the server, and writes the client's files into dir.
func issue(t *testing.T, dir string) (server tls.Certificate, authority *x509.CertPool) {
	t.Helper()
	template := func(n int64, name string) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(n), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
			NotAfter:    time.Now().Add(time.Hour),
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
	}
	newKey := func() *ecdsa.PrivateKey {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	root, rootKey := template(1, "authority"), newKey()
	root.IsCA, root.KeyUsage = true, x509.KeyUsageCertSign
	sign := func(c *x509.Certificate, key *ecdsa.PrivateKey) []byte {
		der, err := x509.CreateCertificate(rand.Reader, c, root, &key.PublicKey, rootKey)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	save := func(name, kind string, der []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	rootDER := sign(root, rootKey)
	parsed, err := x509.ParseCertificate(rootDER)
	if err != nil {
		t.Fatal(err)
	}
	authority = x509.NewCertPool()
	authority.AddCert(parsed)
	clientKey, serverKey := newKey(), newKey()
	keyDER, err := x509.MarshalPKCS8PrivateKey(clientKey)
	if err != nil {
		t.Fatal(err)
	}
	save("ca.pem", "CERTIFICATE", rootDER)
	save("cert.pem", "CERTIFICATE", sign(template(2, "client"), clientKey))
	save("key.pem", "PRIVATE KEY", keyDER)
	return tls.Certificate{Certificate: [][]byte{sign(template(3, "server"), serverKey)}, PrivateKey: serverKey}, authority
}

// forward connects every connection to a unix socket, until the test ends.
func forward(t *testing.T, listener net.Listener, socket string) {
	var mu sync.Mutex
	var work sync.WaitGroup
	open := map[net.Conn]bool{}
	track := func(c net.Conn) {
		mu.Lock()
		defer mu.Unlock()
		open[c] = true
	}
	work.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("unix", socket)
			if err != nil {
				near.Close()
				continue
			}
			track(near)
			track(far)
			for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
				work.Go(func() {
					_, _ = io.Copy(pair[0], pair[1])
					_, _ = pair[0].Close(), pair[1].Close()
				})
			}
		}
	})
	t.Cleanup(func() {
		listener.Close()
		mu.Lock()
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		work.Wait()
	})
}
