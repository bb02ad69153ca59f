package setup

import (
	"context"
	"os"
	"strings"

	"deepswe/env"
)

// Certificates returns the file with the certificate authorities that this machine trusts; empty if there is none. The
// machine may be behind a proxy with an authority of its own, which also sees the connections of set-ups.
func Certificates() string {
	for _, file := range certificatePaths() {
		if _, err := os.Stat(file); err == nil {
			return file
		}
	}
	return ""
}

// certificatePaths returns the places where Linux distributions keep the certificate authorities that they trust.
func certificatePaths() []string {
	return []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"}
}

// Trusting returns environment variables with which programs trust the certificate authorities in a file; none if the
// file's name is empty.
func Trusting(file string) []string {
	if file == "" {
		return nil
	}
	var all []string
	for _, key := range []string{
		"SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO",
		"CARGO_HTTP_CAINFO",
	} {
		all = append(all, key+"="+file)
	}
	return all
}

// Trusted is the file with the certificate authorities that [Trust] makes in a sandbox.
const Trusted = "/tmp/.deepswe-certificates"

// Trust puts this machine's certificate authorities next to those of a sandbox with other files, because the
// connections of a set-up leave from this machine. It returns the variables with which programs find both.
func Trust(ctx context.Context, sb env.Sandbox) ([]string, error) {
	file := Certificates()
	if file == "" {
		return nil, nil
	}
	ours, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if _, err := sb.Write(ctx, Trusted, ours, env.WriteOptions{}); err != nil {
		return nil, err
	}
	paths := strings.Join(certificatePaths(), " ")
	_, err = sb.Run(ctx, env.Command{
		Line:    "for f in " + paths + `; do [ -f "$f" ] && exec cat "$f" >>` + Trusted + "; done",
		Timeout: env.PrepareTimeout,
	})
	return Trusting(Trusted), err
}
